"""Downloads from a server of our own: whole, resumed, cut short, damaged, and unpacked."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from typer.testing import CliRunner

from ecrt.errors import InputError
from paper.__main__ import app
from paper.data import CATALOGUE, KnownData, RemoteFile, fetch
from paper.data.download import download, unpack

CONTENT = np.random.default_rng(0).bytes(600_000)
MD5 = hashlib.md5(CONTENT, usedforsecurity=False).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """Serves CONTENT; the path says how: /plain ignores ranges, /short ends early, /gone is not there."""

    def do_GET(self):
        kind = self.path.split("/")[1]
        self.server.seen.append(self.headers.get("Range"))
        if kind == "gone":
            self.send_error(404)
            return
        content, start = self.server.content, 0
        if self.headers.get("Range") and kind != "plain":
            start = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
            if start >= len(content):
                self.send_error(416)
                return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        body = content[start:]
        self.wfile.write(body[: len(body) // 2] if kind == "short" and not start else body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as found:
        found.content, found.seen = CONTENT, []
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        found.url = f"http://127.0.0.1:{found.server_port}"
        yield found
        found.shutdown()
        thread.join()


def remote(server, kind, name="data.bin", md5=MD5):
    return RemoteFile(url=f"{server.url}/{kind}/{name}", size="600 kB", md5=md5, source="here")


def test_a_whole_file_is_not_fetched_twice(server, tmp_path):
    told = []
    file = download(remote(server, "ranges"), tmp_path, lambda done, total: told.append((done, total)))
    assert file.read_bytes() == CONTENT
    assert told[-1] == (len(CONTENT), len(CONTENT))
    assert [path.name for path in tmp_path.iterdir()] == ["data.bin"]
    download(remote(server, "ranges"), tmp_path)
    assert len(server.seen) == 1


@pytest.mark.parametrize("kind", ["ranges", "plain"])
def test_goes_on_where_it_stopped(server, tmp_path, kind):
    (tmp_path / "data.bin.part").write_bytes(CONTENT[:1000])
    assert download(remote(server, kind), tmp_path).read_bytes() == CONTENT
    assert server.seen == ["bytes=1000-"]


def test_a_connection_that_ends_early_leaves_a_part_alone(server, tmp_path):
    with pytest.raises(InputError, match=r"ended|IncompleteRead"):
        download(remote(server, "short"), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["data.bin.part"]
    assert download(remote(server, "short"), tmp_path).read_bytes() == CONTENT
    assert server.seen[1] == "bytes=262144-"  # blocks are kept whole


def test_a_part_that_was_complete_already(server, tmp_path):
    (tmp_path / "data.bin.part").write_bytes(CONTENT)
    assert download(remote(server, "ranges"), tmp_path).read_bytes() == CONTENT


def test_a_wrong_checksum_is_refused_and_the_part_removed(server, tmp_path):
    (tmp_path / "data.bin.part").write_bytes(b"0" * 1000)  # of another file
    with pytest.raises(InputError, match="should have"):
        download(remote(server, "ranges"), tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_file_that_was_damaged_is_fetched_again(server, tmp_path):
    (tmp_path / "data.bin").write_bytes(b"damaged")
    with pytest.raises(InputError, match="404"):
        download(remote(server, "gone"), tmp_path)
    assert (tmp_path / "data.bin").read_bytes() == b"damaged"  # until there is a better one
    assert download(remote(server, "ranges"), tmp_path).read_bytes() == CONTENT


def test_errors_name_the_address(server, tmp_path):
    with pytest.raises(InputError, match=r"/gone/data\.bin: the server answers 404"):
        download(remote(server, "gone"), tmp_path)
    nobody = RemoteFile(url="http://127.0.0.1:9/data.bin", size="1 MB", md5=MD5, source="nobody")
    with pytest.raises(InputError, match=r"127\.0\.0\.1:9/data\.bin cannot be read"):
        download(nobody, tmp_path)
    assert not list(tmp_path.iterdir())


def archive(kind):
    content = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(content, "w") as out:
            out.writestr("inner/a.txt", "text")
    else:
        with tarfile.open(fileobj=content, mode="w:gz") as out:
            entry = tarfile.TarInfo("inner/a.txt")
            entry.size = 4
            out.addfile(entry, io.BytesIO(b"text"))
    return content.getvalue()


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_archives_are_unpacked_once(tmp_path, kind):
    file = tmp_path / f"data.{kind}"
    file.write_bytes(archive(kind))
    (tmp_path / f"data.{kind}.unpacking").mkdir()  # of a run that was stopped
    unpack(file)
    assert (tmp_path / "inner" / "a.txt").read_text() == "text"
    (tmp_path / "inner" / "a.txt").write_text("mine")
    unpack(file)
    assert (tmp_path / "inner" / "a.txt").read_text() == "mine"
    assert not (tmp_path / f"data.{kind}.unpacking").exists()
    file.write_bytes(b"no archive")
    (tmp_path / f"data.{kind}.unpacked").unlink()
    with pytest.raises(InputError, match="cannot be unpacked"):
        unpack(file)


def test_an_archive_cannot_write_outside(tmp_path):
    file = tmp_path / "here" / "data.tar"
    file.parent.mkdir()
    with tarfile.open(file, "w") as out:
        entry = tarfile.TarInfo("../outside.txt")
        out.addfile(entry, io.BytesIO())
    with pytest.raises(InputError, match="cannot be unpacked"):
        unpack(file)
    assert not (tmp_path / "outside.txt").exists()


def test_fetch_downloads_and_unpacks(server, tmp_path):
    server.content = archive("zip")
    md5 = hashlib.md5(server.content, usedforsecurity=False).hexdigest()
    known = KnownData(
        name="tiny", title="t", home="h", terms="free", next_step="", files=(remote(server, "ranges", "t.zip", md5),)
    )
    fetch(known, tmp_path, lambda file: lambda done, total: None)
    assert (tmp_path / "tiny" / "inner" / "a.txt").is_file()


def test_catalogue_says_all_that_a_user_must_know():
    for known in CATALOGUE.values():
        assert known.terms and known.home and known.next_step  # noqa: PT018
        assert bool(known.files) != bool(known.by_hand)
        assert all(len(file.md5) == 32 and file.source for file in known.files)


def test_command_lists_and_downloads(server, tmp_path, monkeypatch):
    run = CliRunner().invoke(app, ["data"])
    assert run.exit_code == 0
    assert "c60a6e2962c9b8ccbd458d12c8582644" in run.output
    known = KnownData(
        name="tiny", title="A small set", home="h", terms="free", next_step="python -m paper embed tiny",
        files=(remote(server, "ranges"),),
    )  # fmt: skip
    monkeypatch.setitem(CATALOGUE, "tiny", known)
    assert CliRunner().invoke(app, ["data", "tiny", "--show"]).exit_code == 0
    assert not server.seen
    run = CliRunner().invoke(app, ["data", "tiny", "-o", str(tmp_path)])
    assert run.exit_code == 0, run.output
    assert f"export ECRT_DATA={tmp_path}; python -m paper embed tiny" in run.output.replace("\n", "")
    assert (tmp_path / "tiny" / "data.bin").read_bytes() == CONTENT
    for name, message in (("arxiv", "Kaggle wants a login"), ("cifra", "No data set is called 'cifra'")):
        run = CliRunner().invoke(app, ["data", name, "-o", str(tmp_path)])
        assert run.exit_code == 1
        assert message in run.output
    (tmp_path / "taken").write_text("")
    run = CliRunner().invoke(app, ["data", "tiny", "-o", str(tmp_path / "taken")])
    assert "Cannot write to" in run.output
