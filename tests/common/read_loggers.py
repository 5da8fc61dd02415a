"""Read what loggers wrote of a run with each library's own reader: ``read_loggers.py RUN``.

A process of its own: the libraries warn, draw numbers and start threads as they are imported.
"""

import json
import sys
import warnings
from pathlib import Path
from typing import Any

Series = dict[str, list[tuple[int, float]]]


def of_tensorboard(run: Path) -> Series:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"tensors": 0})
    events.Reload()
    return {
        name: [(event.step, event.tensor_proto.float_val[0]) for event in events.Tensors(name)]
        for name in events.Tags()["tensors"]
    }


def of_wandb(run: Path) -> tuple[Series, dict[str, Any]]:
    from wandb.proto.wandb_internal_pb2 import Record
    from wandb.sdk.internal.datastore import DataStore

    series: Series = {}
    facts: dict[str, Any] = {"runs": 0, "kinds": []}
    for path in sorted(run.glob("wandb/offline-run-*/*.wandb")):
        store = DataStore()
        store.open_for_scan(str(path))
        facts["runs"] += 1
        while (data := store.scan_data()) is not None:
            record = Record()
            record.ParseFromString(data)
            kind = record.WhichOneof("record_type")
            facts["kinds"].append(kind)
            if kind == "run":
                facts |= {"id": record.run.run_id, "host": record.run.host}
                config = {i.key: json.loads(i.value_json) for i in record.run.config.update}
                facts["config"] = config
            if kind == "history":
                for item in record.history.item:
                    point = record.history.step.num, json.loads(item.value_json)
                    series.setdefault(item.key or item.nested_key[0], []).append(point)
    return series, facts


def of_mlflow(run: Path) -> tuple[Series, dict[str, Any]]:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{run / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("zerosum")
    runs = client.search_runs([experiment.experiment_id])
    (one,) = runs
    histories = {
        name: client.get_metric_history(one.info.run_id, name) for name in one.data.metrics
    }
    series = {name: sorted((m.step, m.value) for m in each) for name, each in histories.items()}
    return series, {
        "status": one.info.status,
        "params": one.data.params,
        "tags": one.data.tags,
        "times": sorted({m.timestamp for each in histories.values() for m in each}),
    }


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    folder, found = Path(sys.argv[1]).resolve(), {}
    if (folder / "tensorboard").is_dir():
        found["tensorboard"] = of_tensorboard(folder)
    if (folder / "wandb").is_dir():
        found["wandb"], found["wandb facts"] = of_wandb(folder)
    if (folder / "mlflow.db").is_file():
        found["mlflow"], found["mlflow facts"] = of_mlflow(folder)
    print(json.dumps(found))
