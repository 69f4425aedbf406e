/* text_reports.c: what generate and train say of the texts (see text_reports.h). */
#include "runtime/commands/text_reports.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/base/text_writer.h"

void pen_texts_report_rate(const struct pen_text_list *texts, uint64_t passed_ns) {
  uint64_t count = 0, stopped = 0;
  for (uint64_t i = 0; i < texts->count; i++) {
    const struct pen_text *text = &texts->text[i];
    count += text->written - text->prompt->token_count;
    stopped += text->stopped;
  }
  char line[160];
  const int used = snprintf(line, sizeof line, "%" PRIu64 " tokens  %.0f tokens/s", count,
                            (double)count / ((double)passed_ns * 1e-9));
  if (texts->options->stop != NULL) {
    snprintf(line + used, sizeof line - (size_t)used,
             "  %" PRIu64 " of %" PRIu64 " texts ended with a stop token", stopped, texts->count);
  }
  pen_say_line(line);
}

void pen_texts_write_samples(const struct pen_text_list *texts, const struct pen_run *run,
                             uint64_t step) {
  static struct pen_writer out;
  if (step <= run->logged.sample_step) { /* it is made again, after a restart */
    return;
  }
  const int log = run->log_descriptor;
  const off_t size = pen_file_is_regular(log) ? lseek(log, 0, SEEK_END) : -1;
  pen_writer_open(&out, log);
  for (uint64_t i = 0; i < texts->count; i++) {
    const struct pen_text *text = &texts->text[i];
    pen_writer_print(&out, "{\"event\":\"sample\",\"step\":%" PRIu64 ",\"prompt\":", step);
    pen_text_write_prompt(&out, text);
    pen_writer_text(&out, ",\"text\":");
    pen_text_write_continuation(texts, &out, text);
    pen_writer_text(&out, "}\n");
  }
  if (pen_writer_flush(&out) != 0) {
    pen_warn("--log %s: %s; training continues without the samples of step %" PRIu64,
             run->options->log, strerror(errno), step);
    pen_check(size < 0 || ftruncate(log, size) == 0, "cannot shorten --log");
  }
}
