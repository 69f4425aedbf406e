/* observe.h: what a run reports of itself. It includes nothing and no file includes it.
 *
 *   step_log.h   rank 0: --log, the progress line, the sums of eval
 *   plan_summary.h   the plan, in the first line of --log, for penstock-report
 *   log_tail.h   the parent, after a loss: what the log holds already
 *   restart_event.h   rank 0: the report of a restart
 *   trace.h      each rank: when its actions ran, in a ring in memory; --trace
 *
 * In: the statistics of steps that all ranks have published, and times of actions. Out: JSON lines,
 * a Chrome trace. Between steps nothing here allocates. */
#ifndef PEN_OBSERVE_H
#define PEN_OBSERVE_H
#endif
