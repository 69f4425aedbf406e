/* action_text.h: the text form of actions, as in `RANK: 0F0 0SEND_F0 ...` (docs/contracts.md
 * section 10, --print=actions). */
#ifndef PEN_ACTION_TEXT_H
#define PEN_ACTION_TEXT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "gen/partition/partition.h"
#include "runtime/plan/plan.h"

/* Reads a complete lowered order. Fails (65 bad text, 66 absent). Sets only the columns kind,
 * overlaps, stage and microbatch; every rank has a list. The stage of an action must be on the
 * rank of its line. */
void pen_actions_read(const char *path, const struct pen_partition *partition,
                      struct pen_action ***action, uint32_t **count);

/* Writes one line a rank: the actions of the kinds that actions.def marks as printed.
 * pen_actions_read() reads it. */
void pen_actions_print(FILE *file, const struct pen_rank_program *ranks, uint32_t rank_count);

/* Writes an action as in `6RECV_F3` into text[32]; returns text. */
const char *pen_action_format(char text[32], int kind, uint32_t stage, uint32_t microbatch);

/* Reads `6RECV_F3` at *at, up to white space, '|' or the end of the text, and advances *at; sets
 * kind, stage and microbatch. False: the text is not an action. */
bool pen_action_parse(const char **at, struct pen_action *action);

#endif
