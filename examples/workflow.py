r"""A workflow of law: recompress files, run cycles over several datasets, draw the plots.

Every step has targets, so a second run does nothing, and an interrupted one goes on
where it stopped::

    pip install 'hepcache[workflow]'
    python examples/workflow.py --datasets datasets.json --out results

``datasets.json`` is a coffea fileset: names of datasets to lists of ROOT files. A new
processor, another number of cycles or another compression is another version::

    python examples/workflow.py --datasets datasets.json --out results --version tight \
        --processor examples/hh_bbll.py:Processor --processor-args '{"btag": 0.7}'

``--columns`` keeps the branches of these names or globs only, which makes copies small and
quick to check: those that the processor reads, and counters such as ``nJet``.

The steps are law's and luigi's: ``law run`` with a job manager of theirs can spread them.
"""

from __future__ import annotations

import argparse
import json
import sys
from hashlib import blake2b
from pathlib import Path
from typing import Any

try:
    import law
    import luigi
except ImportError as error:
    raise ImportError(f"{error}; it needs more: pip install 'hepcache[workflow]'") from error

from hepcache import CycleReport, LocalCluster, analyse, load_fileset
from hepcache.io.atomic import write_atomically

HERE = Path(__file__).resolve().parent


class Step(law.Task):
    """What all steps have: the datasets, the directory for results, and a version."""

    task_namespace = "hepcache"
    datasets = luigi.Parameter(description="a fileset's JSON: datasets to files")
    out = luigi.Parameter(description="directory for everything that is made")
    version = luigi.Parameter(default="v1", description="name of this variant")

    def files(self) -> dict[str, list[str]]:
        """Return the files of every dataset."""
        found: dict[str, list[str]] = {}
        for spec in load_fileset(str(self.datasets), treename="Events"):
            found.setdefault(spec.dataset, []).append(spec.path)
        return found

    def local(self, *parts: str) -> Any:
        """Return a file below the directory for results."""
        return law.LocalFileTarget(str(Path(str(self.out), *parts)))


class Recompress(Step):
    """Copies of one dataset's files in a compression that is quick to read."""

    dataset = luigi.Parameter()
    compression = luigi.Parameter(default="zstd:5")
    columns = law.CSVParameter(default=(), description="branches to keep: names or globs")

    def output(self) -> Any:
        """Return the copies."""
        folder = f"{self.dataset}-{str(self.compression).replace(':', '')}"
        if self.columns:
            folder += f"-{blake2b(repr(self.columns).encode(), digest_size=4).hexdigest()}"
        names = [Path(path).name for path in self.files()[str(self.dataset)]]
        return law.SiblingFileCollection([self.local("files", folder, one) for one in names])

    def run(self) -> None:
        """Make those that are missing; every column is compared with the input."""
        from hepcache.formats.ttree.recompress import recompress_files

        paths = [Path(path) for path in self.files()[str(self.dataset)]]
        folder = Path(self.output().dir.path)
        missing = [path for path in paths if not (folder / path.name).exists()]
        recompress_files(
            missing, folder, compression=str(self.compression), columns=self.columns or None
        )


class Cycles(Step):
    """A processor over all datasets, several times, in one cluster."""

    processor = luigi.Parameter(default=f"{HERE / 'hh_bbll.py'}:Processor")
    processor_args = luigi.Parameter(default="{}")
    compression = luigi.Parameter(default="zstd:5")
    columns = law.CSVParameter(default=(), description="branches to keep: names or globs")
    cycles = luigi.IntParameter(default=3)
    hosts = luigi.IntParameter(default=2)
    chunksize = luigi.IntParameter(default=100_000)

    def requires(self) -> dict[str, Any]:
        """Return the copies of every dataset."""
        return {name: Recompress.req(self, dataset=name) for name in self.files()}

    def output(self) -> dict[str, Any]:
        """Return the processor's output and the report."""
        return {
            "output": self.local(str(self.version), "out.coffea"),
            "report": self.local(str(self.version), "report.json"),
        }

    def run(self) -> None:
        """Run the cycles; the results appear when all are done."""
        from coffea.util import save

        from hepcache.process.named_processor import load_processor

        processor = load_processor(str(self.processor), json.loads(str(self.processor_args)))
        fileset = {
            name: [target.path for target in copies.targets]
            for name, copies in self.input().items()
        }
        records = []
        with LocalCluster(hosts=int(self.hosts)) as cluster:
            for number in range(1, int(self.cycles) + 1):
                output, record = analyse(
                    fileset, processor, cluster=cluster, chunksize=int(self.chunksize),
                    name=f"cycle {number}", status=sys.stderr.isatty(),
                )  # fmt: skip
                records.append(record)
        made = self.output()
        with made["output"].localize("w") as temporary:
            save(output, temporary.path)
        CycleReport(tuple(records), str(self.version)).to_json(made["report"].path)


class Plots(Step):
    """Histograms of all datasets, and the report's figures."""

    processor = Cycles.processor
    processor_args = Cycles.processor_args
    compression = Cycles.compression
    columns = Cycles.columns
    cycles = Cycles.cycles
    hosts = Cycles.hosts
    chunksize = Cycles.chunksize

    def requires(self) -> Any:
        """Return the cycles."""
        return Cycles.req(self)

    def output(self) -> Any:
        """Return the files that are known before anything runs; others lie beside them."""
        names = ("cycles.pdf", "histograms.pdf", "report.html")
        version = str(self.version)
        return law.SiblingFileCollection([self.local(version, "plots", one) for one in names])

    def run(self) -> None:
        """Draw."""
        from coffea.util import load

        folder = Path(self.output().dir.path)
        report = CycleReport.read(self.input()["report"].path)
        report.to_html(folder / "report.html")
        report.to_figures(folder, formats=["pdf"])
        output = load(self.input()["output"].path)
        write_atomically(folder / "histograms.pdf", histograms(output))


def histograms(output: dict[str, Any]) -> bytes:
    """Return a PDF with one page per histogram, all datasets in it."""
    import io

    from matplotlib.backends.backend_pdf import PdfPages
    from matplotlib.figure import Figure

    names = dict.fromkeys(name for one in output.values() for name in one["histograms"])
    stream = io.BytesIO()
    with PdfPages(stream, metadata={"CreationDate": None}) as pages:
        for name in names:
            axes = (figure := Figure(figsize=(7, 5))).subplots()
            for dataset, one in output.items():
                found = one["histograms"][name].project(name)
                axes.stairs(found.values(), found.axes[0].edges, label=dataset)
            axes.set(xlabel=found.axes[0].label, ylabel="events")
            axes.legend(title="dataset")
            pages.savefig(figure)
    return stream.getvalue()


def main(arguments: list[str] | None = None) -> int:
    """Build the plots and all that they need; return 0 when everything is there."""
    parser = argparse.ArgumentParser(
        description="Recompress, run cycles, draw plots; a second run does nothing."
    )
    parser.add_argument("--datasets", required=True, help="a fileset's JSON")
    parser.add_argument("--out", default="results", help="directory for all results")
    parser.add_argument("--version", default="v1", help="name of this variant")
    parser.add_argument("--processor", default=f"{HERE / 'hh_bbll.py'}:Processor")
    parser.add_argument("--processor-args", default="{}", help="as JSON")
    parser.add_argument("--compression", default="zstd:5")
    parser.add_argument(
        "--columns", type=lambda text: tuple(text.split(",")), default=(),
        help="branches to keep in the copies: names or globs, separated by commas",
    )  # fmt: skip
    for name, default in (("cycles", 3), ("hosts", 2), ("chunksize", 100_000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    wanted = vars(parser.parse_args(arguments))
    wanted["out"] = str(Path(wanted["out"]).resolve())
    done = luigi.build([Plots(**wanted)], local_scheduler=True, detailed_summary=True)
    print(done.summary_text)
    return 0 if done.scheduling_succeeded else 1


if __name__ == "__main__":
    sys.exit(main())
