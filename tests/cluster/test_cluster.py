"""A cluster gives the bytes of one machine, survives its workers, and says what is wrong with itself."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command import tpca
from pictures import folder, oddities, save_mode

from tpca_cli.cluster import connect as reach
from tpca_cli.cluster.cluster import Cluster
from tpca_cli.cluster.connect import connect
from tpca_cli.errors import StorageError
from tpca_cli.fit.plan import FitOptions, FitRequest
from tpca_cli.fit.run import fit
from tpca_cli.tensor_pca.fold import tree


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two worker processes that all tests of this module share."""
    with connect("local:2") as connected:
        yield connected


@pytest.fixture
def certificates(cluster, tmp_path_factory) -> dict[str, Path]:
    """The key and certificate of the run, as files that a site would have."""
    folder = tmp_path_factory.mktemp("tls")
    given = cluster._client.security.get_tls_config_for_role("client")
    found = {}
    for name in ("ca_file", "cert", "key"):
        found[name] = folder / f"{name}.pem"
        found[name].write_text(given[name])
    return found


@pytest.fixture
def address(cluster, certificates, monkeypatch) -> Iterator[str]:
    """Where the scheduler is, for commands that have the certificates by Dask's own settings."""
    import dask

    settings = {
        "distributed.comm.tls.ca-file": str(certificates["ca_file"]),
        "distributed.comm.tls.client.cert": str(certificates["cert"]),
        "distributed.comm.tls.client.key": str(certificates["key"]),
    }
    for name, value in settings.items():  # for programs that a test starts
        monkeypatch.setenv("DASK_" + name.upper().replace(".", "__").replace("-", "_"), value)
    with dask.config.set(settings):
        yield str(cluster._client.scheduler.address)


@pytest.fixture
def photos(tmp_path, monkeypatch) -> Path:
    """A folder, named relative to where we are, with gray among color and files that cannot be read."""
    monkeypatch.chdir(tmp_path)
    folder(Path("photos"), 40, sizes=[(24, 32)], channels=(3, 3, 1))
    for name in ("image_0007.png", "image_0031.png"):
        damaged = Path("photos", name)
        damaged.write_bytes(damaged.read_bytes()[:-200])
    return Path("photos")


def add_text(one: str, other: str) -> str:
    return f"({one}+{other})"


def stumble(number: int) -> str:
    time.sleep(0.02 * (9 - number))
    if number in (3, 6):
        raise StorageError(f"file {number}", 5)
    return str(number)


def slowly(number: int) -> int:
    time.sleep(0.05)
    return number


def test_results_come_in_order_and_sums_have_the_tree_of_one_machine(cluster) -> None:
    counted: list[float] = []
    assert list(cluster.map(slowly, range(20), weigh=lambda n: n, done=counted.append)) == list(range(20))
    assert sum(counted) == sum(range(20))
    for count, fan in ((1, 2), (2, 2), (13, 2), (13, 3)):
        here = tree(map(str, range(count)), add_text, fan)
        assert cluster.reduce(str, add_text, range(count), fan=fan) == here
    for count, together in ((1, 2), (2, 2), (13, 2), (13, 3), (4, 4), (17, 4), (9, 8)):
        found = cluster.reduce(str, add_text, range(count), together=together)
        assert found.translate(str.maketrans("", "", "()+ ")) == "".join(map(str, range(count)))


def test_the_first_failure_in_order_is_the_one_reported(cluster) -> None:
    for work in (
        lambda: list(cluster.map(stumble, range(9))),
        lambda: cluster.reduce(stumble, add_text, range(9)),
    ):
        with pytest.raises(StorageError, match="file 3") as caught:
            work()
        assert caught.value.errno == 5


FITS = {
    "rank1": ["--method", "rank1"],
    "rank1 by energy": ["--method", "rank1", "--energy", 0.9, "--center"],
    "tiles": ["--tile", 8, "--method", "operator", "--components", 20],
    "exact": ["--method", "operator", "--solver", "exact", "--size", "12x16", "--components", 9, "--center"],
    "fast": ["--method", "operator", "--solver", "fast", "--components", 5],
    "subspace": ["--method", "subspace", "--components", 6, "--center"],
}


@pytest.mark.parametrize("options", FITS.values(), ids=list(FITS))
def test_a_fit_has_the_bytes_and_the_messages_of_one_machine(options, photos, address) -> None:
    alone = tpca("fit-basis", photos, "-o", "alone.h5", *options, code=3)
    many = tpca("fit-basis", photos, "-o", "many.h5", *options, "--cluster", address, code=3)
    assert Path("alone.h5").read_bytes() == Path("many.h5").read_bytes()
    assert alone.err.replace("in memory", "on the workers") == many.err
    assert "photos/image_0007.png" in many.err and os.getcwd() not in many.err


def test_an_update_leaves_out_on_a_cluster_what_it_leaves_out_here(photos, address, tmp_path) -> None:
    folder(tmp_path / "more", 12, sizes=[(24, 32)], seed=30)
    tpca("fit-basis", photos, "-o", "base.h5", code=3)
    update = ["fit-basis", "more", photos, "--update", "base.h5", "--on-duplicate", "skip", "--json"]
    alone = tpca(*update, "-o", "alone.h5", code=3).json
    many = tpca(*update, "-o", "many.h5", "--cluster", address, code=3).json
    assert alone["duplicates"] == many["duplicates"] > 0
    assert Path("alone.h5").read_bytes() == Path("many.h5").read_bytes()


def test_an_archive_has_the_bytes_of_one_machine(photos, address) -> None:
    alone = tpca("encode", photos, "-o", "alone.h5", "--force", "--psnr", 34, code=3)
    many = tpca("encode", photos, "-o", "many.h5", "--force", "--psnr", 34, "--cluster", address, code=3)
    assert Path("alone.h5").read_bytes() == Path("many.h5").read_bytes()
    assert alone.err == many.err
    assert not list(Path().glob("*.partial"))


def test_scores_have_the_bytes_of_one_machine_and_so_have_those_that_are_appended(photos, address) -> None:
    tpca("fit-basis", photos, "-o", "tiles.h5", "--tile", 8, "--force", code=3)
    first, second = f"{photos}/*1.png", str(photos)
    made = {"alone.h5": ["--workers", 1], "two.h5": ["--workers", 2], "many.h5": ["--cluster", address]}
    for name, there in made.items():
        tpca("encode", first, "-o", name, "--basis", "tiles.h5", "--plain", "--force", *there, code=None)
        tpca("encode", second, "-o", name, "--plain", "--append", *there, code=3)
    assert len({Path(name).read_bytes() for name in made}) == 1


def test_scores_of_tensors_have_the_bytes_of_one_machine(address, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("tpca_cli.encode.plain_items.PRODUCT_VALUES", 3 * 6 * 5 * 4 * 2)  # four products
    rng = np.random.default_rng(3)
    for number in range(12):
        (tmp_path / "in").mkdir(exist_ok=True)
        np.save(tmp_path / "in" / f"{number:02}.npy", rng.normal(size=(6, 5, 4, 2)))
    monkeypatch.chdir(tmp_path)
    tpca("fit-basis", "in", "-o", "basis.h5", "--method", "subspace", "--components", 4)
    made = {"alone.h5": ["--workers", 1], "two.h5": ["--workers", 2], "many.h5": ["--cluster", address]}
    for name, there in made.items():
        tpca("encode", "in", "-o", name, "--basis", "basis.h5", "--plain", "--dtype", "float64", *there)
    assert len({Path(name).read_bytes() for name in made}) == 1


def test_an_exact_archive_has_the_bytes_of_one_machine(photos, address) -> None:
    oddities(photos / "odd")
    alone = tpca("encode", photos, "-o", "alone.h5", "--exact")
    many = tpca("encode", photos, "-o", "many.h5", "--exact", "--cluster", address)
    assert Path("alone.h5").read_bytes() == Path("many.h5").read_bytes()
    assert alone.err == many.err and "kept as it is: photos/odd/cut.jpg" in many.err


def test_groups_of_all_kinds_and_what_is_appended_have_the_same_bytes(photos, address) -> None:
    folder(photos / "deep", 3, sizes=[(40, 30)], channels=(1,), dtype=np.uint16)
    save_mode(photos / "clear.png", "RGBA", 32, 32)
    for name, there in (("alone.h5", []), ("many.h5", ["--cluster", address])):
        step = ["--step", 12, "--method", "operator"]
        tpca("encode", photos / "deep", photos / "clear.png", "-o", name, "--force", *step, *there)
        tpca("encode", photos, "-o", name, "--append", "--force", *there, code=3)
    assert Path("alone.h5").read_bytes() == Path("many.h5").read_bytes()


@pytest.mark.parametrize("command", ["fit-basis", "encode"])
def test_a_file_that_ends_the_run_ends_it_with_the_same_words(command, photos, address) -> None:
    arguments = [command, photos, "-o", "out.h5", "--on-error", "fail", "--json"]
    alone, many = tpca(*arguments, code=1), tpca(*arguments, "--cluster", address, code=1)
    assert alone.json == many.json and "photos/image_0007.png" in many.json["error"]
    assert not Path("out.h5").exists()


def test_a_killed_worker_costs_time_and_nothing_else(photos, cluster) -> None:
    """One of two workers dies as soon as the first shard is done; its nanny starts another."""
    request = FitRequest([str(photos)], Path("alone.h5"), FitOptions("operator", "fast", components=5))
    fit(request, str)
    victims = list(cluster._client.run(os.getpid).values())[:1]

    def kill(stage: str, done: int, total: int) -> None:
        while victims:
            os.kill(victims.pop(), signal.SIGKILL)

    fit(replace(request, output=Path("many.h5"), cluster=cluster), str, kill)
    assert not victims
    assert Path("alone.h5").read_bytes() == Path("many.h5").read_bytes()


def test_a_signal_cancels_the_work_on_the_cluster(photos, address, cluster) -> None:
    """A solve that would never end: stopped by SIGTERM, nothing of it is left there or here."""
    folder(photos, 200, sizes=[(48, 48)])
    endless = ["--solver", "fast", "--tolerance", "1e-12", "--components", "90", "--size", "48x48"]
    program = [sys.executable, "-m", "tpca_cli", "fit-basis", str(photos), "-o", "out.h5"]
    before, others = set(os.listdir()), cluster._client.run_on_scheduler(known_tasks)
    child = subprocess.Popen([*program, *endless, "--method", "operator", "--cluster", address])
    try:
        until(lambda: any(cluster._client.processing().values()))
        child.send_signal(signal.SIGTERM)
        assert child.wait(30) == 143
    finally:
        child.kill()
    until(lambda: cluster._client.run_on_scheduler(known_tasks) <= others)
    assert set(os.listdir()) == before


def known_tasks(dask_scheduler) -> set[str]:
    return set(dask_scheduler.tasks)


def until(ready) -> None:
    deadline = time.monotonic() + 120
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_scheduler_file_and_a_cluster_of_this_machine(photos, address) -> None:
    Path("scheduler.json").write_text(json.dumps({"address": address}))
    tpca("fit-basis", photos, "-o", "alone.h5", code=3)
    for number, where in enumerate(("scheduler.json", "local:1")):
        tpca("fit-basis", photos, "-o", f"{number}.h5", "--cluster", where, code=3)
        assert Path("alone.h5").read_bytes() == Path(f"{number}.h5").read_bytes()


def test_what_cannot_be_reached_is_said_within_a_bounded_time(photos, monkeypatch) -> None:
    monkeypatch.setattr(reach, "WAIT", 1.0)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        nobody = f"tcp://127.0.0.1:{unused.getsockname()[1]}"
        said = tpca("fit-basis", photos, "-o", "out.h5", "--cluster", nobody, code=5).err
    assert nobody in said and "is it running?" in said
    tpca("encode", photos, "-o", "out.h5", "--cluster", "absent.json", code=5)
    Path("wrong.json").write_text("[]")
    tpca("encode", photos, "-o", "out.h5", "--cluster", "wrong.json", code=2)
    for wrong in ("local:", "local:0", "local:many"):
        tpca("encode", photos, "-o", "out.h5", "--cluster", wrong, code=2)
    tpca("fit-basis", photos, "-o", "out.h5", "--cluster", "local:2", "--cache", "c.h5", code=2)
    assert not Path("out.h5").exists()


def test_workers_must_see_the_images(photos, address, cluster) -> None:
    with pytest.raises(StorageError, match="does not see"):
        cluster.check_sees(b"/nowhere/image.png", 10)


@pytest.mark.parametrize("command", ["fit-basis", "encode"])
def test_the_plan_names_shards_bytes_and_memory(command, photos, address) -> None:
    for where in ("local:3", address):
        facts = tpca(command, photos, "-o", "out.h5", "--dry-run", "--json", "--cluster", where).json
        for name in ("threads", "shards", "bytes_to_workers", "bytes_to_client", "memory_per_worker"):
            assert facts[f"cluster_{name}"] > 0
    assert not list(Path().glob("out*"))


def test_without_dask_all_else_works_and_the_option_says_what_to_install(photos, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "dask", None)
    monkeypatch.setitem(sys.modules, "distributed", None)
    tpca("fit-basis", photos, "-o", "basis.h5", code=3)
    tpca("encode", photos, "-o", "out.h5", "--basis", "basis.h5", "--step", 20, "--force", code=3)
    tpca("decode", "out.h5", "-o", "back")
    said = tpca("encode", photos, "-o", "more.h5", "--cluster", "local:2", code=1).err
    assert "pip install 'tpca-cli[dask]'" in said


def ports() -> set[int]:
    """Where this process and its children listen."""
    import psutil

    here = psutil.Process()
    return {
        connection.laddr.port
        for process in (here, *here.children(recursive=True))
        for connection in process.net_connections("tcp")
        if connection.status == "LISTEN"
    }


async def talk(address: str, security, patience: float = 2) -> object:
    """Ask whoever listens, in Dask's words, to say who it is; a web server never answers that."""
    import asyncio

    from distributed.comm import connect as dial

    arguments = security.get_connection_args("client")
    comm = await asyncio.wait_for(dial(address, timeout=patience, **arguments), patience)
    try:
        await asyncio.wait_for(comm.write({"op": "identity", "reply": True}), patience)
        return await asyncio.wait_for(comm.read(), patience)
    finally:
        comm.abort()


def test_nobody_else_reaches_a_cluster_of_this_machine(cluster) -> None:
    """Neither without a certificate nor with one of another run, at none of its ports."""
    import asyncio
    import urllib.error
    import urllib.request

    from distributed.security import Security

    scheduler = str(cluster._client.scheduler.address)
    assert asyncio.run(talk(scheduler, cluster._client.security, 60))["type"] == "Scheduler"
    reached = ports()
    assert int(scheduler.rpartition(":")[2]) in reached and len(reached) >= 5
    for port in reached:
        for protocol, security in (("tcp", Security()), ("tls", Security.temporary())):
            with pytest.raises((OSError, asyncio.TimeoutError)):
                asyncio.run(talk(f"{protocol}://127.0.0.1:{port}", security))
        for page in ("/", "/info/main/workers.html", "/json/identity.json", "/metrics", "/health"):
            with pytest.raises(OSError) as caught:
                urllib.request.urlopen(f"http://127.0.0.1:{port}{page}", timeout=2)
            if not isinstance(caught.value, urllib.error.HTTPError):
                break  # no web server
            assert caught.value.code == 404


def test_an_address_that_needs_certificates_says_so(cluster, photos) -> None:
    scheduler = str(cluster._client.scheduler.address)
    said = tpca("fit-basis", photos, "-o", "out.h5", "--cluster", scheduler, code=2).err
    assert "TLS" in said and not Path("out.h5").exists()


ODD = """
from tpca_cli.cluster import worker

genuine = worker.versions()
worker.versions = lambda: tuple((name, "0.1" if name == "numpy" else number) for name, number in genuine)
"""


def test_a_worker_that_comes_late_is_checked_too(address, certificates, tmp_path) -> None:
    from tpca_cli.errors import TpcaError

    (tmp_path / "odd.py").write_text(ODD)
    there = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    options = [f"--tls-{name.replace('_', '-')}={path}" for name, path in certificates.items()]
    with connect(address) as cluster:
        before = cluster.workers
        program = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--no-nanny"]
        program += ["--nthreads", "8", "--preload", str(tmp_path / "odd.py"), *options]
        late = subprocess.Popen(program, stderr=subprocess.DEVNULL, cwd=tmp_path, env=there)
        try:
            cluster._client.wait_for_workers(before + 1, timeout=120)
            with pytest.raises(TpcaError, match=r"numpy is 0\.1 at a worker on"):
                list(cluster.map(slowly, range(200)))
        finally:
            late.terminate()
            late.wait()
        cluster._client.wait_for_workers(before, timeout=120)


def test_nothing_is_collected_while_a_client_starts_or_closes(cluster, monkeypatch) -> None:
    """A client that failed, collected then, waits for a lock that the other one holds."""
    import gc

    import distributed

    during: list[bool] = []

    class Watched(distributed.Client):
        def __init__(self, *given: object, **options: object) -> None:
            during.append(gc.isenabled())
            super().__init__(*given, **options)

        def close(self, *given: object, **options: object) -> object:
            during.append(gc.isenabled())
            return super().close(*given, **options)

    monkeypatch.setattr(distributed, "Client", Watched)
    with connect("local:1"):
        assert gc.isenabled()
    assert gc.isenabled()
    assert during[:2] == [False, False]
