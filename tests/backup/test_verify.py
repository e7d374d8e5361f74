"""Damaged and incomplete backups."""

from pathlib import Path

import msgspec
import pytest

from headwater.backup.create import create_backup
from headwater.backup.manifest import MANIFEST, BackupFailed, Manifest, verify_backup
from headwater.backup.restore import restore_backup
from headwater.storage.folder import FolderStore

from .servers import no_progress, origin


@pytest.fixture
def place(server: object, data: Path, tmp_path: Path) -> Path:
    """The folder of a backup."""
    create_backup(origin(data), FolderStore(tmp_path / "backup"), no_progress)
    return tmp_path / "backup"


def check_refused(place: Path, tmp_path: Path, problem: str) -> None:
    with pytest.raises(BackupFailed, match=problem):
        verify_backup(FolderStore(place), no_progress)
    with pytest.raises(BackupFailed, match=problem):
        restore_backup(FolderStore(place), tmp_path / "again", FolderStore(tmp_path / "lake"), no_progress)
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize("kind", ["image", "lake", "snapshots", MANIFEST])
def test_a_damaged_backup_is_detected_and_not_restored(kind: str, place: Path, tmp_path: Path) -> None:
    victim = next(path for path in sorted(place.rglob("*")) if path.is_file() and kind in str(path))
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.write_bytes(content)
    check_refused(place, tmp_path, r"damaged|missing|lacks|cannot be decoded|says")


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        ("image/", "cannot be decoded: parts of its image are missing"),
        ("lake/", "lacks segment"),
        ("snapshots/", r"lacks snapshot [\w-]+ and 1 more objects"),
    ],
)
def test_an_object_that_the_manifest_leaves_out_is_missed(kind: str, problem: str, place: Path, tmp_path: Path) -> None:
    manifest = msgspec.json.decode((place / MANIFEST).read_bytes(), type=Manifest)
    objects = [copied for copied in manifest.objects if not copied.key.startswith(kind)]
    (place / MANIFEST).write_bytes(msgspec.json.encode(msgspec.structs.replace(manifest, objects=objects)))
    check_refused(place, tmp_path, problem)


def test_a_manifest_that_describes_another_state_is_refused(place: Path, tmp_path: Path) -> None:
    manifest = msgspec.json.decode((place / MANIFEST).read_bytes(), type=Manifest)
    (place / MANIFEST).write_bytes(msgspec.json.encode(msgspec.structs.replace(manifest, position=1)))
    check_refused(place, tmp_path, f"has position {manifest.position}; {MANIFEST} says 1")


def test_a_backup_of_another_version_is_refused(place: Path, tmp_path: Path) -> None:
    manifest = msgspec.json.decode((place / MANIFEST).read_bytes(), type=Manifest)
    (place / MANIFEST).write_bytes(msgspec.json.encode(msgspec.structs.replace(manifest, version=3)))
    check_refused(place, tmp_path, "The backup has version 3")


def test_a_backup_with_fields_of_another_version_is_not_called_damaged(place: Path, tmp_path: Path) -> None:
    (place / MANIFEST).write_bytes(b'{"version": 1, "journal": "0123456789abcdef", "position": 7}')
    check_refused(place, tmp_path, "The backup has version 1; this version of Headwater reads version 2")


def test_a_manifest_with_bytes_that_are_not_text_is_called_damaged(place: Path, tmp_path: Path) -> None:
    content = (place / MANIFEST).read_bytes()
    (place / MANIFEST).write_bytes(content.replace(b'"log_id": "', b'"log_id": "\xff'))
    check_refused(place, tmp_path, f"{MANIFEST} in .* is damaged")


def test_a_place_without_a_manifest_is_not_a_backup(tmp_path: Path) -> None:
    check_refused(tmp_path / "backup", tmp_path, "There is no complete backup in")
