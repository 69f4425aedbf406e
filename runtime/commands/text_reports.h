/* text_reports.h: what generate and train say of the texts. */
#ifndef PEN_TEXT_REPORTS_H
#define PEN_TEXT_REPORTS_H

#include <stdint.h>

#include "runtime/commands/texts.h"
#include "runtime/rank/run.h"

/* A line on standard error: the new tokens of all texts, and how many a second; with --stop how
 * many texts have stopped. */
void pen_texts_report_rate(const struct pen_text_list *texts, uint64_t passed_ns);

/* {"event":"sample","step":300,"prompt":"The ","text":"license "}, a line each, to the log. Of
 * those that the disk has no room for nothing stays. */
void pen_texts_write_samples(const struct pen_text_list *texts, const struct pen_run *run,
                             uint64_t step);

#endif
