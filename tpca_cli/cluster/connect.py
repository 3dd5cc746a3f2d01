"""Reach a cluster, or make one of this machine; let go of it whatever happens."""

from __future__ import annotations

import gc
import json
import logging
import re
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from tpca_cli.cluster.cluster import Cluster
from tpca_cli.errors import StorageError, TpcaError, UsageError, printable

WAIT = 20.0  # seconds that a scheduler, and its first worker, may take to answer
# Dask watches itself many times a second, in every process: on one machine that is taken from the work.
CALM = {
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "5s",
    "distributed.worker.profile.enabled": False,
    "distributed.worker.memory.monitor-interval": "500ms",
}
SILENT: dict[str, list[str]] = {"distributed.scheduler.http.routes": [], "distributed.worker.http.routes": []}


@contextmanager
def connect(address: str, wait: float | None = None) -> Iterator[Cluster]:
    """The cluster at `tcp://..`, of a scheduler file, or of `local:N` processes; leaving cancels its work."""
    wait = WAIT if wait is None else wait
    count = local_workers(address)
    try:
        import dask
        import distributed
    except ImportError as error:
        raise TpcaError("--cluster needs Dask: pip install 'tpca-cli[dask]'") from error
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # its complaints reach us as exceptions
    logging.getLogger("tornado").setLevel(logging.CRITICAL)
    with ExitStack() as stack:
        # what tasks share is part of their graph, so that it survives any worker
        stack.enter_context(dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}))
        if count:
            target = stack.enter_context(_local(count))
        else:
            target = address if "://" in address else _from_file(address)
        try:
            with _no_collection():
                client = distributed.Client(  # type: ignore[no-untyped-call]
                    target, timeout=wait, set_as_default=False
                )
        except (TypeError, RuntimeError) as error:  # how Dask says that an address needs certificates
            raise UsageError(
                f"{printable(address)} needs Dask's TLS settings: ca-file, client key and cert ({error})"
            ) from error
        except (OSError, ValueError) as error:
            raise StorageError(
                f"no Dask scheduler answers at {printable(address)} within {wait:.0f} s; is it running?"
            ) from error
        stack.callback(_close, client)
        cluster = Cluster(client, address, wait)
        cluster.check(count or 1)
        gc.freeze()  # what Dask has loaded stays: looking through it for garbage takes a tenth of a second
        stack.callback(gc.unfreeze)
        yield cluster


def local_workers(address: str) -> int:
    """N of `local:N`, or 0 for any other address."""
    if not address.startswith("local:"):
        return 0
    match = re.fullmatch(r"local:([1-9][0-9]{0,3})", address)
    if match is None:
        raise UsageError(f"--cluster {printable(address)}: a number of processes must follow, as in local:4")
    return int(match[1])


@contextmanager
def _local(count: int) -> Iterator[Any]:
    """Worker processes of one thread on this machine.

    Whoever reaches a Dask port runs code as its owner, and on a shared machine everybody reaches this one. So
    all connections are encrypted with a key that is made for this run and never leaves its processes, and
    Dask's web server, which cannot be left out, listens here without a page to show.
    """
    import dask
    from distributed import LocalCluster, system
    from distributed.security import Security

    try:
        security = Security.temporary()  # type: ignore[no-untyped-call]
    except ImportError as error:
        raise TpcaError("--cluster local:N needs cryptography: pip install 'tpca-cli[dask]'") from error
    with (
        tempfile.TemporaryDirectory(prefix="tpca-", ignore_cleanup_errors=True) as scratch,
        dask.config.set({**CALM, **SILENT}),
    ):
        # Ctrl-C in a terminal reaches every process of the group: the workers leave it to us
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
        try:
            with _no_collection():
                cluster = LocalCluster(  # type: ignore[no-untyped-call]
                    n_workers=count,
                    threads_per_worker=1,
                    memory_limit=system.MEMORY_LIMIT // count,
                    security=security,
                    protocol="tls://",
                    host="127.0.0.1",
                    dashboard_address="127.0.0.1:0",
                    scheduler_kwargs={"dashboard": False},
                    silence_logs=logging.CRITICAL,
                    local_directory=scratch,
                )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        try:
            yield cluster
        finally:
            cluster.close(timeout=10)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Nothing is collected while a client of Dask starts or closes.

    A client that failed closes itself when it is collected, and waits for a lock that whoever starts or
    closes another one holds: both would wait for ever, or until Dask gives up. So it is collected before.
    """
    gc.collect()
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _from_file(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            address = json.load(file)["address"]
    except OSError as error:
        raise StorageError.of(error, path, "read the scheduler file") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{printable(path)} is no scheduler file of Dask; it names no address") from error
    return str(address)


def _close(client: Any) -> None:
    """The scheduler forgets the work of a client that leaves: what has not begun never will."""
    with suppress(Exception), _no_collection():  # whatever it says now, the work is done or lost
        client.close(timeout=10)


ASKED_BYTES = 120  # of a task, per image: its path, size and time
TOLD_BYTES = 25  # of a result, per image: its digest
PROCESS = 200 << 20  # interpreter, libraries, the files being read


def cluster_threads(address: str) -> int:
    """How many tasks run at a time: N of local:N, which need not be started, or what a scheduler says."""
    count = local_workers(address)
    if count:
        return count
    with connect(address) as cluster:
        return cluster.threads
