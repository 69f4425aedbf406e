"""page.py: the page around the charts."""
import math
import os
import statistics

from curves import draw_curves, key_of
from memory import DRAWN_MAX, draw_memory, memory_table
from read_log import is_skipped, without
from step_chart import step_section
from svg import element, escape, figure

STYLE = """
:root { color-scheme: light dark; --back: #fff; --text: #1c2430; --soft: #5b6675; --grid: #e4e8ed; --axis: #8a94a1; --tile: #f4f6f8;
  --line: #1f66b0; --evaluation: #c2570c; --skipped: #c62828; --break: #7b4fb0; --hit: rgba(31,102,176,.14); }
@media (prefers-color-scheme: dark) { :root { --back: #14181d; --text: #e3e8ee; --soft: #9aa6b4; --grid: #2a313a; --axis: #6b7684;
  --tile: #1d232b; --line: #6cb0f5; --evaluation: #f2a154; --skipped: #ff7b72; --break: #b694e6; --hit: rgba(108,176,245,.2); } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 24px; max-width: 1220px; background: var(--back); color: var(--text);
  font: 15px/1.45 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size: 22px; margin: 0 0 2px; } h2 { font-size: 17px; margin: 30px 0 8px; } h3 { font-size: 14px; margin: 14px 0 4px; } p { margin: 4px 0 10px; color: var(--soft); }
.tiles { display: flex; flex-wrap: wrap; gap: 10px; margin: 16px 0; } .tiles div { background: var(--tile); border-radius: 8px;
  padding: 8px 14px; min-width: 118px; } .tiles b { display: block; font-size: 19px; font-weight: 600; font-variant-numeric: tabular-nums; }
.tiles span { color: var(--soft); font-size: 13px; }
.curves { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr)); gap: 14px 20px; }
figure { margin: 0; } svg { display: block; width: 100%; height: auto; } svg text { fill: var(--text); font-size: 12px; }
svg .name { font-size: 14px; font-weight: 600; } svg .tick, svg .unit { fill: var(--soft); }
svg .grid { stroke: var(--grid); } svg .axis { stroke: var(--axis); }
svg .line { fill: none; stroke: var(--line); stroke-width: 1.6; stroke-linejoin: round; } svg .dot { fill: var(--line); }
svg .band { fill: var(--line); fill-opacity: .22; } svg .evaluation { fill: none; stroke: var(--evaluation); stroke-width: 1.6; }
svg .evaluated { fill: var(--back); stroke: var(--evaluation); stroke-width: 1.6; } svg .skipped { fill: var(--skipped); }
svg .break { stroke: var(--break); stroke-dasharray: 4 3; stroke-width: 1.3; }
svg .point, svg .target { fill: transparent; } svg .point:hover { fill: var(--hit); }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: 13.5px; font-variant-numeric: tabular-nums; }
th, td { padding: 4px 12px; text-align: right; border-bottom: 1px solid var(--grid); } th { color: var(--soft); font-weight: 600; }
.text td, .text th { text-align: left; } .text td.number, .text th.number { text-align: right; white-space: nowrap; } summary { cursor: pointer; color: var(--soft); margin: 6px 0; }
svg .raw { fill: none; stroke: var(--line); stroke-width: 1; stroke-opacity: .3; }
svg .run0, .keys .run0 { --run: #1f66b0; } svg .run1, .keys .run1 { --run: #e08a1e; } svg .run2, .keys .run2 { --run: #2a9d78; }
svg .run3, .keys .run3 { --run: #d1495b; } svg .run4, .keys .run4 { --run: #8655b5; } svg .run5, .keys .run5 { --run: #a58f00; }
svg .run6, .keys .run6 { --run: #3aa6c4; } svg .run7, .keys .run7 { --run: #8a94a1; }
svg [class*=" run"] { stroke: var(--run); } svg .dot[class*=" run"] { fill: var(--run); stroke: none; }
svg .evaluation[class*=" run"], svg .dashed { stroke-dasharray: 5 3; }
.keys span { margin-right: 22px; } .keys .key { display: inline-block; width: 14px; height: 4px; margin-right: 7px; vertical-align: middle; background: var(--run); }
footer { margin-top: 34px; color: var(--soft); font-size: 13px; }
svg .kind { fill: #8a94a1; } svg .kind0 { fill: #1f66b0; } svg .kind1 { fill: #7fb2e5; } svg .kind2 { fill: #e08a1e; }
svg .kind3 { fill: #8655b5; } svg .kind4 { fill: #c9a0dc; } svg .kind5 { fill: #2a9d78; } svg .kind6 { fill: #a3b18a; }
svg .kind7 { fill: #d1495b; } svg .kind8 { fill: #6d6875; } svg .kind9 { fill: #e6c229; } svg .kind10 { fill: #577590; }
svg .F { fill: #8cbdec; } svg .B { fill: #44508f; } svg .I { fill: #ec9532; } svg .W { fill: #1b7a55; } svg .message { fill: #b5476f; }
svg .exchange { fill: #8a94a1; } svg .end { fill: #8655b5; } svg .wait { fill: var(--axis); fill-opacity: .45; }
svg .planned { opacity: .65; } svg .act:hover { fill-opacity: .7; } svg .named { stroke: var(--skipped); stroke-width: 1.6; }
svg .mark { fill: #000; font-size: 10.5px; pointer-events: none; } svg .mark.B, svg .mark.W { fill: #fff; }
"""


EVENTS_MAX = 500


def plural(count, noun, ending="s"):
    return f"{count} {noun}" + ("" if count == 1 else ending)


def describe_plan(plan):
    text = f'{plan["schedule"]}, {plural(plan["ranks"], "rank")} with {plural(plan["stages_per_rank"], "stage")} each, '
    text += plural(plan["microbatches"], "microbatch", "es")
    return text + (f', {plan["replicas"]} replicas' if plan["replicas"] > 1 else "")


def duration(seconds):
    minutes, whole = divmod(round(seconds), 60)
    return f"{seconds:.1f} s" if seconds < 60 else f"{minutes}:{whole:02d} min" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d} h"


def figures(log):
    """What a run has come to: values and their names."""
    lines = [log.steps[step] for step in sorted(log.steps)]
    last = lines[-1]
    speeds = [line["tokens_per_second"] for line in lines if line["tokens_per_second"] is not None]
    seconds = math.fsum(line["step_ms"] for line in lines if line["step_ms"] is not None) / 1e3
    evaluations = [line["eval_loss"] for line in log.evaluations.values() if line["eval_loss"] is not None]
    entries = [
        (f'{lines[0]["step"]} to {last["step"]}' if len(lines) > 1 else str(lines[0]["step"]), "steps"),
        (without(last, "loss") if last["loss"] is None else figure(last["loss"]), "last loss"),
        (figure(min(evaluations)) if evaluations else "none", "least evaluation loss"),
        (figure(statistics.median(speeds)) if speeds else "none", "tokens/s, median"),
        (figure(sum(line["tokens"] for line in lines)), "tokens"),
        (duration(seconds), "in steps"),
        (str(sum(map(is_skipped, lines))), "skipped"),
        (str(sum(event["event"] == "restart" for event in log.events)), "restarts"),
    ]
    shares = [line["mfu"] for line in lines if line.get("mfu") is not None]
    return entries + ([(figure(statistics.median(shares), 3), "MFU, median")] if shares else [])


def tiles(log):
    entries = [(value, name) for value, name in figures(log) if (value, name) != ("none", "least evaluation loss")]
    return element("div", "".join(element("div", element("b", escape(value)) + element("span", escape(name))) for value, name in entries), class_="tiles")


def runs_table(logs, names):
    """The same of several runs, a row each."""
    rows = [dict((name, value) for value, name in figures(log)) for log in logs]
    heads = list(dict.fromkeys(head for row in rows for head in row))
    head = element("tr", element("th", "run") + "".join(element("th", escape(head), class_="number") for head in heads))
    body = "".join(element("tr", element("td", escape(name)) + "".join(element("td", escape(row.get(head, "none")), class_="number") for head in heads))
                   for name, row in zip(names, rows))
    return element("div", element("table", head + body, class_="text"), class_="wide")


def event_text(event):
    if event["event"] == "restart":
        ranks = event.get("lost") if isinstance(event.get("lost"), list) else []
        lost = "; ".join(str(one.get("cause", "")) for one in ranks if isinstance(one, dict))
        source = {"memory": "the state in memory"}.get(event.get("source"), "the checkpoint or the start")
        return event["from_step"], f'restart from {source}, {figure(event["seconds"])} s after the loss: {lost}'
    if event["event"] == "sample":
        return event["step"], f'sample: {event.get("prompt", "")} … {event.get("text", "")}'
    what = {"compute": "computes at {} of its plan", "data": "waits for its data, at {} of its plan",
            "link": "sends to rank %s in {} times the usual time" % event.get("peer")}
    words = what[event["kind"]].format(figure(event["ratio"], 3))
    return event["since_step"], f'rank {event["rank"]} (host {event.get("host", "?")}) {words}'


def events_section(log):
    events = [event_text(event) for event in log.events]
    events += [(step - 1, "a command resumed the run") for step in log.starts]
    if not events:
        return ""
    rows = "".join(element("tr", element("td", str(step), class_="number") + element("td", escape(text))) for step, text in sorted(events, key=lambda event: event[0])[:EVENTS_MAX])
    more = element("p", f"The first {EVENTS_MAX} of {len(events)}.") if len(events) > EVENTS_MAX else ""
    table = element("table", element("tr", element("th", "after step", class_="number") + element("th", "event")) + rows, class_="text")
    return element("h2", "Events") + more + element("div", table, class_="wide")


def notes(log):
    texts = []
    if log.repeated:
        texts.append(f"{plural(log.repeated, 'step')} in the log twice, after a resume: the later ones are drawn.")
    if log.damaged:
        texts.append(f"{plural(log.damaged, 'line')} of the log that are no JSON are left out.".replace("1 line of the log that are no JSON are", "1 line of the log that is no JSON is"))
    missing = sum(line["eval_loss"] is None for line in log.evaluations.values())
    if missing:
        texts.append(f"{plural(missing, 'evaluation')} without a loss, or with one that is not finite: not drawn.")
    if log.unfinished:
        texts.append("The last line of the log is not complete: the run is going on, or its disk was full.")
    return "".join(element("p", escape(text)) for text in texts)


def memory_section(log):
    if not log.plans:
        return element("h2", "Memory") + element("p", "The log has no plan, so the bytes of the ranks are not known.")
    plan = log.plans[-1]
    of = " (of each replica)" if plan["replicas"] > 1 else ""
    more = f' Of {plan["ranks"]} ranks the first {DRAWN_MAX} are drawn.' if plan["ranks"] > DRAWN_MAX else ""
    return (element("h2", "Memory by kind and rank" + of) +
            element("p", "Placed by the generator before the first step; nothing is allocated later." + more) +
            element("figure", draw_memory(plan)) + memory_table(plan))


def name_of(log, path):
    return log.plans[-1]["name"] if log.plans else os.path.basename(path)


def names_of(logs, paths):
    """Names that differ: those of the plans, or else of the files."""
    names = [name_of(log, path) for log, path in zip(logs, paths)]
    for texts in (names, [os.path.basename(path) for path in paths], paths):
        if len(set(texts)) == len(texts):
            return texts
    return [f"{path} ({number})" for number, path in enumerate(paths, 1)]


def one_run(log, path, comparison, drawn, title):
    plan = log.plans[-1] if log.plans else None
    body = element("h1", escape(title or name_of(log, path))) + (element("p", escape(describe_plan(plan))) if plan else "")
    body += tiles(log) + notes(log) + element("div", draw_curves([log], [None], drawn), class_="curves")
    body += step_section(comparison) if comparison else ""
    return body + memory_section(log) + events_section(log)


def several_runs(logs, names, drawn, title):
    body = element("h1", escape(title or f"{len(logs)} runs")) + key_of(names)
    body += runs_table(logs, names) + element("div", draw_curves(logs, names, drawn), class_="curves")
    for log, name in zip(logs, names):
        more = notes(log) + (memory_section(log) if log.plans else "") + events_section(log)
        plan = element("p", escape(describe_plan(log.plans[-1]))) if log.plans else ""
        body += element("details", element("summary", escape(name)) + plan + more)
    return body


def make_page(logs, paths, comparison, drawn, title, version):
    """`comparison`: of a trace, or None. `title`: None: the name of the plan, or how many runs there are."""
    names = names_of(logs, paths)
    if len(logs) == 1:
        body = one_run(logs[0], paths[0], comparison, drawn, title)
        plans = logs[0].plans
        digest = f', plan {plans[-1]["digest"][:16]}' if plans else ""
    else:
        body, digest = several_runs(logs, names, drawn, title), ""
    smooth = f", smoothed by {drawn.smooth:g}" if drawn.smooth > 0 else ""
    files = ", ".join(map(os.path.basename, paths))
    body += element("footer", escape(f"penstock-report {version}, from {files}{digest}{smooth}"))
    name = title or (names[0] if len(logs) == 1 else f"{len(logs)} runs")
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">' + element("title", escape(name))
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}{element("style", STYLE)}</head>\n<body>{body}</body></html>\n'
