"""The data sets of `datasets.yaml`: where they come from, on what terms, and how to get them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import yaml

from mmlib.core.errors import DataError
from mmlib.core.files import listed
from mmlib.core.paths import data_dir
from mmlib.data.download import download, unpack
from mmlib.data.tables import check_choice


@dataclass(frozen=True)
class DataSet:
    """One data set; the fields are explained at the top of `datasets.yaml`."""

    name: str
    papers: list[str]
    feeds: str
    source: str
    licence: str
    citation: str
    size: str
    layout: list[str]
    remotes: list[dict[str, Any]]
    how: str = ""

    @property
    def folder(self) -> Path:
        """Its folder inside the data folder."""
        return data_dir() / self.name

    def missing(self, folder: Path | None = None) -> list[str]:
        """Patterns of the layout that no file in the folder matches."""
        folder = folder or self.folder
        return [
            patterns
            for patterns in self.layout
            if not any(listed(folder, pattern) for pattern in patterns.split("|"))
        ]


with Path(__file__).with_name("datasets.yaml").open(encoding="utf-8") as _file:
    DATA_SETS = {
        name: DataSet(name, **{"remotes": [], **fields})
        for name, fields in yaml.safe_load(_file).items()
    }


def find(name: str) -> DataSet:
    """The data set of that name; raises DataError that lists the names."""
    check_choice("data set", name, DATA_SETS)
    return DATA_SETS[name]


def get(item: DataSet) -> list[Path]:
    """Download and unpack what can be fetched; files and folders already there are kept.

    Returns the paths that are now in place. Raises DownloadError, ArchiveError, and DataError
    where the data set can only be obtained by hand.
    """
    if not item.remotes:
        raise DataError(f"{item.name}: cannot be downloaded by a program. {item.how}")
    placed = []
    for remote in item.remotes:
        target, urls, sha256 = item.folder / remote["path"], remote["urls"], remote.get("sha256")
        if target.is_dir() and any(target.iterdir()):
            if target == item.folder and (lacking := item.missing()):
                raise DataError(
                    f"{target}: is not empty, but lacks {', '.join(lacking)} (move away what is "
                    "there, then get it again)"
                )
        elif not target.is_file():
            if remote.get("archive"):
                archive = data_dir() / ".downloads" / Path(urlparse(urls[0]).path).name
                unpack(download(urls, archive, sha256=sha256), target, remote.get("inner", ""))
                archive.unlink()
            else:
                download(urls, target, sha256=sha256)
        placed.append(target)
    return placed
