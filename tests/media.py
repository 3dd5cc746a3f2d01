"""First bytes of files that look like media: of newer formats that are read, and of others that are not."""

from __future__ import annotations


def ftyp(brand: bytes, *others: bytes) -> bytes:
    box = b"ftyp" + brand + bytes(4) + b"".join(others)
    return (len(box) + 4).to_bytes(4, "big") + box + bytes(64)


FOREIGN = {
    "cr3": ftyp(b"crx ", b"crx ", b"isom"),
    "mp4": ftyp(b"isom", b"isom", b"mp42"),
    "mov": ftyp(b"qt  "),
    "3gp": ftyp(b"3gp5"),
    "orf": b"IIRO\x08\0\0\0" + bytes(64),
    "rw2": b"IIU\0\x18\0\0\0" + bytes(64),
    "raf": b"FUJIFILMCCD-RAW 0201" + bytes(64),
    "x3f": b"FOVb" + bytes(64),
    "mrw": b"\0MRM" + bytes(64),
    "psd": b"8BPS\0\1" + bytes(64),
    "jp2": b"\0\0\0\x0cjP  \r\n\x87\n" + bytes(64),
    "j2k": b"\xff\x4f\xff\x51" + bytes(64),
    "mkv": b"\x1a\x45\xdf\xa3" + bytes(64),
    "avi": b"RIFF\0\0\0\0AVI LIST" + bytes(64),
    "wmv": bytes.fromhex("3026b2758e66cf11a6d900aa0062ce6c"),
    "mpg": b"\0\0\1\xba" + bytes(64),
    "m2ts": (b"\x47" + bytes(187)) * 3,
    "exr": b"\x76\x2f\x31\x01" + bytes(64),
    "dcm": bytes(128) + b"DICM",
    "fits": b"SIMPLE  =                    T",
    "svg": b"<svg xmlns='http://www.w3.org/2000/svg'/>",
    "svg with a prolog": b"\xef\xbb\xbf<?xml version='1.0'?>\n<!-- drawn -->\n<svg width='1'/>",
}
READ = {
    "avif": (ftyp(b"avif", b"mif1", b"miaf"), "AVIF"),
    "avif by a compatible brand": (ftyp(b"mif1", b"avif", b"miaf"), "AVIF"),
    "heic": (ftyp(b"heic", b"mif1", b"heic"), "HEIF"),
    "heic by a compatible brand": (ftyp(b"mif1", b"heic"), "HEIF"),
    "jxl codestream": (b"\xff\x0a" + bytes(64), "JXL"),
    "jxl container": (b"\0\0\0\x0cJXL \r\n\x87\n" + bytes(64), "JXL"),
}
