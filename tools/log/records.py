"""records.py: the lines of a log as values with names, by step.

A resumed run makes steps again that are in the log already. The later ones count: of lines that are read together the earlier ones
are left out; of others the sink is told from which step on it gets them again."""
import array
import bisect
import time

from read_log import kind_of

STEP_VALUES = {"loss": "train/loss", "grad_norm": "train/grad_norm", "lr": "train/lr", "tokens_per_second": "train/tokens_per_second",
               "step_ms": "train/step_ms", "skipped": "train/skipped", "epoch": "train/epoch", "mfu": "train/mfu",
               "aux_loss": "train/aux_loss", "z_loss": "train/z_loss", "expert_load": "train/expert_load",
               "idle_experts": "train/idle_experts"}
EVALUATION_VALUES = {"eval_loss": "eval/loss", "eval_perplexity": "eval/perplexity"}
RANKS_MAX = 64  # whose memory is a value each
NAME_MAX = 40  # characters of a prompt in a name


class Record:
    """What a line says: `values` are numbers by name, `texts` texts by name; `plan` of the first step of a command."""

    def __init__(self, step, values=None, texts=None, plan=None):
        self.step, self.values, self.texts, self.plan = step, values or {}, texts or {}, plan
        self.seconds = 0.0  # in steps and evaluations until its end
        self.makes_step = False


def numbers(line, names):
    return {name: line[field] for field, name in names.items() if isinstance(line.get(field), (int, float))}


def memory_of(plan):
    """MiB of each rank of a replica, and a table by kind."""
    kinds, ranks = plan["bytes"], range(plan["ranks"])
    values = {f"memory/rank {rank} MiB": sum(of[rank] for of in kinds.values()) / 2**20 for rank in ranks[:RANKS_MAX]}
    rows = ["| rank | " + " | ".join(kinds) + " |", "|---" * (len(kinds) + 1) + "|"]
    rows += [f"| {rank} | " + " | ".join(f"{of[rank] / 2**20:.2f} MiB" for of in kinds.values()) + " |" for rank in ranks]
    return values, "\n".join(rows)


def record_of_step(line):
    record = Record(line["step"], numbers(line, STEP_VALUES), plan=line.get("plan"))
    record.makes_step = True
    if record.plan:
        values, table = memory_of(record.plan)
        record.values.update(values)
        if record.plan["bytes"]:
            record.texts["memory"] = table
    return record


def record_of_event(line):
    if line["event"] == "sample":
        prompt = str(line.get("prompt", ""))
        return Record(line["step"], texts={f"samples/{' '.join(prompt.split())[:NAME_MAX]}": f"{prompt}{line.get('text', '')}"})
    if line["event"] == "slow":
        words = {"compute": "computes slowly", "data": "waits for its data", "link": f"sends slowly to rank {line.get('peer')}"}[line["kind"]]
        text = f"rank {line['rank']} (host {line.get('host', '?')}) {words} since step {line['since_step']}, ratio {line['ratio']}"
        name = f"slow/rank {line['rank']} {line['kind']}"
        return Record(line["since_step"], numbers(line, {"ratio": name}), {"events": text})
    ranks = line.get("lost") if isinstance(line.get("lost"), list) else []
    lost = "; ".join(str(one.get("cause", "")) for one in ranks if isinstance(one, dict))
    return Record(line["from_step"], {"restarts/seconds": line["seconds"]} if line["seconds"] is not None else {}, {"events": f"restart: {lost}"})


def record_of(line):
    kind = kind_of(line)
    if kind == "step":
        return record_of_step(line)
    return Record(line["step"], numbers(line, EVALUATION_VALUES)) if kind == "evaluation" else record_of_event(line)


class Records:
    """Sends what lines say to a sink, once each."""

    def __init__(self):
        self.last_step = 0  # the last that was sent
        self.steps, self.tokens = array.array("q"), array.array("q")  # the tokens up to each step
        self.seconds, self.start = 0.0, None

    def send(self, lines, sink):
        records, again_from = [], None
        last = self.last_step
        for line in lines:
            record = record_of(line)
            if record.makes_step and record.step <= last:
                records = [one for one in records if one.step < record.step]
                if record.step <= self.last_step:
                    again_from = min(record.step, again_from or record.step)
            last = record.step if record.makes_step else last
            self.count(record, line)
            records.append(record)
        if self.start is None:  # the clock of the run: what is read first ends now
            self.start = time.time() - self.seconds
        if again_from is not None:
            sink.again_from(again_from)
        for record in records:
            sink.put(record, self.start + record.seconds)
        self.last_step = last

    def count(self, record, line):
        """The tokens up to a step; the time."""
        self.seconds += (line.get("step_ms") or line.get("eval_ms") or 0.0) / 1e3
        record.seconds = self.seconds
        if record.makes_step:
            past = bisect.bisect_left(self.steps, record.step)
            del self.steps[past:], self.tokens[past:]
            self.steps.append(record.step)
            self.tokens.append((self.tokens[-1] if self.tokens else 0) + line["tokens"])
            record.values["train/tokens"] = self.tokens[-1]
