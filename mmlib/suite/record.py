"""`mmlib record` makes a paper's evidence, `mmlib judge` reads it."""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from dataclasses import replace as replaced
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from mmlib.core import plots, recordings
from mmlib.core.claims import Assessment, assess, ledger, parts_table
from mmlib.core.engine import SECONDS, Resources, devices_of, run_jobs, tidy
from mmlib.core.errors import DataError
from mmlib.core.evidence import Evidence, features_text
from mmlib.core.evidence import header as header_of
from mmlib.core.experiment import Experiment
from mmlib.core.files import PICTURES, alone, file_hash, listed
from mmlib.core.forest import forest
from mmlib.core.jobs import JOB, NO_SEED, Answer, Job
from mmlib.core.parallel import connect
from mmlib.core.paths import OWN_EVIDENCE, data_dir, evidence_dir, own_dataset, write_atomic
from mmlib.core.recordings import incomplete
from mmlib.core.tables import write_json
from mmlib.data import flickr8k
from mmlib.features import sets
from mmlib.suite.papers import experiment as experiment_of
from mmlib.suite.training import How, shown
from mmlib.world import captioned_images

FEATURES = "flickr8k/features/*"  # among the inputs of an experiment that reads photographs
DRAWN = "No photographs of Flickr8k are here: four drawings take their place."


def record(
    number: str, tier: str, seeds: Sequence[int], *, datasets: Sequence[str] = (),
    systems: Sequence[str] = (), resources: Resources = Resources(), replace: bool = False,
    folder: Path | None = None, how: How = How(),
) -> Evidence:  # fmt: skip
    """Run a paper's whole grid for these seeds, and write what no recording has as another one.

    datasets, systems: only these, and what has no seed. The recording is written at the end, also
    where that is an error or Ctrl-C; jobs that are finished are not run again. folder: of all.
    how: precision, weights and curves of trainings; for weights that are kept, what was finished
    without them is run again. replace: record these data sets anew; the recordings that have them
    stay in use until the new one is whole, and are then set aside.
    Returns all the evidence that there is now. Raises DataError for a paper without evidence, a
    scheduler that does not answer, a folder in which another recording is made, a damaged recording
    or one that does not fit the new one, and what loading the data raises.
    """
    experiment = experiment_of(number)
    if systems and replace:
        raise DataError("what is recorded anew is so with all of its systems: name none")
    if systems:
        names = datasets or experiment.datasets(tier)
        grid = {system: name for name in names for system in experiment.systems(tier, name)}
        systems = [n.strip() for s in systems for n in ([s] if s in grid else s.split(","))]
        if unknown := [name for name in systems if name not in grid]:
            near = " or ".join(get_close_matches(unknown[0], grid, 3, 0)) or "another tier"
            raise DataError(f"no system {unknown[0]!r} here; did you mean {near}?")
    jobs = resources.jobs if how.weights is None else how.weights / ".jobs"
    precise = how.precision == "float32"  # no job of one precision is taken for another's
    resources = replaced(resources, folder=jobs if precise else jobs / how.precision)
    if resources.cluster:  # found out now, not after the documents are built
        connect(resources.cluster).close()
    folder = (folder or evidence_dir()) / tier / experiment.paper
    busy = (
        f"{folder}: another recording is being made there; wait for its end, or give this one "
        "another folder (--evidence)"
    )
    with alone(folder.parent / f".{folder.name}.lock", busy):  # both would record the same jobs
        old = recordings.read(folder) if recordings.paths_of(folder) else None
        recorded = _current(folder, old, experiment).jobs if old and not replace else set()
        data = experiment.load_arrays(experiment.load_study(tier, datasets), tier)
        stages = experiment.stages(tier, data, seeds)
        columns: dict[str, dict[str, dict[str, str]]] = {name: {} for name in data}
        for job in (job for stage in stages for job in stage.jobs):
            columns[job.dataset][job.system["system"]] = {k: str(v) for k, v in job.system.items()}
        header = _header(experiment, tier, resources.device, data, columns)
        header["precision"] = how.precision
        for earlier in old.recordings if old else ():
            if replace and earlier["settings"].keys() <= data.keys():
                continue
            if difference := recordings.disagreement(earlier, header):
                raise DataError(
                    f"{folder / earlier['file']} differs from what would be recorded now in "
                    f"{difference}: record anew (--replace), or elsewhere (--evidence DIR)"
                )
        missing = [
            replaced(stage, jobs=[
                job for job in stage.jobs
                if _key(job) not in recorded
                and (not systems or job.system["system"] in systems
                     or (job.seed == NO_SEED and stage.parallel))
            ])
            for stage in stages
        ]  # fmt: skip
        todo = [
            _key(job) for stage in missing for job in stage.jobs
            if job.settings and job.seed != NO_SEED
            and not resources.path(stage.function, job, data[job.dataset]).exists()
        ]  # fmt: skip
        means = {key[:2]: old.means(*key[:2], SECONDS, JOB) for key in todo if old}
        took = {key: float(seconds.mean()) for key, seconds in means.items() if len(seconds)}
        at_once = len(devices_of(resources))
        of = f"of {len({system for _, system, _ in todo})} systems (--systems takes some)"
        print(f"{_left(todo, took, at_once)}, {of}", file=sys.stderr)
        answers: list[tuple[Job, Answer]] = []

        def on_answer(job: Job, answer: Answer) -> str:
            answers.append((job, answer))
            if (key := _key(job)) in todo:
                todo.remove(key)
                took[key[:2]] = answer.seconds
            return _left(todo, took, at_once)

        def watch(bar: Any) -> AbstractContextManager:  # the last epoch, and what is left
            left = partial(_left, todo, took, at_once)
            return shown(resources.jobs, lambda text: bar.set_postfix_str(f"{text}; {left()}"))

        finished, how = False, replaced(how, version=experiment.version)
        try:
            for stage in missing:
                run_jobs(
                    stage, data, resources, on_answer=on_answer, how=how, watch=watch,
                    label=f"{experiment.paper}, {tier}: {stage.function.__name__}",
                )  # fmt: skip
            finished = True
        finally:
            if answers and (finished or not replace):
                trained, values = zip(*answers, strict=True)
                anew = data.keys() if replace else ()
                recordings.write(folder, tidy(trained, values, data), header, anew)
        return recordings.read(folder)


def _key(job: Job) -> tuple[str, str, int]:
    return job.dataset, job.system["system"], job.seed


def _header(
    experiment: Experiment[Any, Any], tier: str, device: str, data: Mapping[str, Any],
    columns: Mapping[str, Mapping[str, Mapping[str, str]]],
) -> dict[str, Any]:  # fmt: skip
    unused = {name: experiment.systems(tier, name).keys() - columns[name].keys() for name in data}
    return header_of(
        paper=experiment.paper, tier=tier, device=device, method_version=experiment.version,
        settings={name: asdict(experiment.budget(tier, name)) for name in data},
        data={name: arrays.fingerprint for name, arrays in data.items()},
        inputs=inputs_of(experiment, tier), **_features(experiment, tier), systems=columns,
        inapplicable={name: sorted(systems) for name, systems in unused.items()},
        bounds=experiment.bounds, may_skip=experiment.may_skip,
    )  # fmt: skip


def _left(
    todo: Sequence[tuple[str, str, int]], took: Mapping[tuple[str, str], float], at_once: int
) -> str:
    """How many trainings are left, and about how long: as their systems took, else the mean."""
    mean = sum(took.values()) / max(len(took), 1)
    hours = sum(took.get(key[:2], mean) for key in todo) / 3600 / max(min(at_once, len(todo)), 1)
    return f"{len(todo)} trainings left" + (f", about {hours:.1f} h" if hours else "")


def inputs_of(experiment: Experiment[Any, Any], tier: str) -> dict[str, str]:
    """The SHA-256 of each file below the data folder that the tier reads."""
    used = sets.in_use()
    if users := own_dataset() if tier == "paper" else None:
        return {
            f"{users.name}/{path.relative_to(users).as_posix()}": file_hash(path)
            for path in listed(users, "**/*")
            if path.is_file() and path.suffix.lower() not in PICTURES
        }
    hashes = {}
    for pattern in experiment.inputs.get(tier, ()):
        paths = listed(data_dir(), pattern)
        if pattern == FEATURES and used:  # of several sets side by side, the one in use
            paths = sets.files(used.path, sets.labels_of(used, flickr8k.LABELS))
        for path in filter(Path.is_file, paths):
            hashes[path.relative_to(data_dir()).as_posix()] = file_hash(path)
    return hashes


def _features(experiment: Experiment[Any, Any], tier: str) -> dict[str, Any]:
    """What a header says of the features that the tier reads: {"features": ...}, or nothing."""
    used = sets.in_use()
    reads = FEATURES in experiment.inputs.get(tier, ())
    return {"features": sets.note(used)} if used and reads else {}


def read(number: str, tier: str, folder: Path | None = None) -> Evidence:
    """A paper's evidence. Raises DataError where there is none, where a recording is damaged, and
    where the method, the settings or the columns of a system have changed since.

    folder: of all evidence; None for `core.paths.evidence_dir`, or for the package's own where
    that has nothing of this paper and tier. Prints which, and which other image features are used.
    """
    experiment = experiment_of(number)
    chosen = (folder or evidence_dir()) / tier / experiment.paper
    bundled = OWN_EVIDENCE / tier / experiment.paper
    if folder is None and not recordings.paths_of(chosen) and recordings.paths_of(bundled):
        print(f"{chosen}: no evidence there; shown is the recorded one, from {bundled}.")
        chosen = bundled
    evidence = _current(chosen, recordings.read(chosen), experiment)
    if used := _features(experiment, tier):
        evidence = replaced(evidence, header={**evidence.header, "features_used": used["features"]})
    if evidence.other_features:
        print(
            f"Recorded figures, claims and verdicts are not of this run: {evidence.other_features}."
        )
    return evidence


def _current(folder: Path, evidence: Evidence, experiment: Experiment[Any, Any]) -> Evidence:
    """The evidence of a folder, without systems that the experiment no longer has.

    Raises DataError where it is not what would be recorded now.
    """
    tier, names = evidence.header["tier"], evidence.datasets
    current = {name: experiment.systems(tier, name) for name in names}
    now = {
        "method_version": experiment.version,
        "settings": {name: asdict(experiment.budget(tier, name)) for name in names},
        "systems": {
            name: {system: {k: str(v) for k, v in row.items()} for system, row in rows.items()}
            for name, rows in current.items()
        },
    }
    for header in evidence.recordings:
        if difference := recordings.disagreement(header, {**header, **now}):
            problem = f"was recorded by other code, which differs in {difference}"
            raise DataError(f"{folder / header['file']}: {problem}; record anew (--replace)")
    series = evidence.series
    rows = [s in current[d] for d, s in zip(series["dataset"], series["system"], strict=True)]
    return replaced(evidence, series=series[rows].reset_index(drop=True))


def assess_paper(number: str, tier: str) -> list[Assessment]:
    """Every claim of a paper, assessed from its evidence alone. Raises DataError, see `read`."""
    return assessments(number, read(number, tier))


def assessments(number: str, evidence: Evidence) -> list[Assessment]:
    """Every claim of a paper that is about the evidence's tier, assessed with all of its seeds."""
    claims = experiment_of(number).claims_of(evidence.header["tier"])
    return [assess(claim, evidence) for claim in claims]


def photographs() -> Figure:
    """What verdicts on photographs are about: four of Flickr8k, each with its shortest caption.

    Where the data folder has none, drawings of the picture world, and it says so. A notebook with
    photographs is not to be committed: they are others' (`ci/hygiene.py check`).
    """
    try:
        images = flickr8k.load("test", features=None)
        print("Four photographs of Flickr8k, each with its shortest caption:")
    except DataError:
        images = captioned_images("test", 4)
        print(DRAWN)
    pictures, texts = map(images.open_image, range(4)), [min(c, key=len) for c in images.captions]
    return plots.show_pictures([*pictures], texts[:4], columns=4)


def made(makers: Mapping[str, Callable[[], Any]], gaps: Sequence[str]) -> tuple[dict, list[str]]:
    """What these make, by name; and what a record with gaps does not suffice for, and why."""
    done, lacking = dict[str, Any](), list[str]()
    for name, make in makers.items():
        try:
            done[name] = make()
        except Exception as error:  # of many kinds, where something is not there
            if not gaps:
                raise
            lacking.append(f"{name} ({error})")
    return done, lacking


def write_judgement(number: str, tier: str, out: Path, folder: Path | None = None) -> str:
    """Write every table, figure and verdict of a paper's evidence into `out`; the ledger as text.

    Nothing is trained and no data is loaded. `out` gets verdicts.json, a CSV file a table and a
    PNG file a figure. What the evidence lacks is the first thing that the text and verdicts.json
    say; the text also says which tables and figures cannot be made of it.
    """
    evidence, experiment = read(number, tier, folder), experiment_of(number)
    gaps = incomplete(evidence, experiment)
    assessed = assessments(number, evidence)
    with rc_context():
        plots.use_style()  # without it names stand outside of the picture
        tables, no_tables = made(experiment.tables(evidence), gaps)
        figures, no_figures = made(experiment.figures(evidence), gaps)
        for name, figure in {**figures, "claims": forest(assessed)}.items():
            plots.write(figure, out / f"{name}.png")
    tables = {name: table for name, table in tables.items() if len(table)}
    tables |= {"ledger": ledger(assessed).set_index("id"), "parts": parts_table(assessed)}
    for name, table in tables.items():
        write_atomic(out / f"{name}.csv", table.to_csv)
    features, claims = evidence.header["features"], [entry.record() for entry in assessed]
    write_json(out / "verdicts.json", {"incomplete": gaps, "features": features, "claims": claims})
    lines = [f"INCOMPLETE: {sentence}" for sentence in gaps]
    if lacking := no_tables + no_figures:
        lines.append(f"not made, as values are not recorded: {'; '.join(lacking)}")
    lines += [f"features: {features_text(features)}"] if features else []
    columns = ["claim", "effect, 95 % interval", "verdict", "parts", "firm"]
    shown = [tables["ledger"][columns].to_string()]
    shown += [f"{a.claim.id} is not tested: {a.why}" for a in assessed if not a.parts]
    seeds = f"{len(evidence.seeds)} seeds"
    if len(evidence.seeds) < 2:
        seeds = "one seed, so the intervals tell nothing of what another training would give"
    return "\n".join([*lines, *shown, "", f"{seeds}; all of it is in {out}"])
