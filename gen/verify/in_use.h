/* in_use.h: the rule "in use": from the wait to the signal of its readers nobody else uses the
 * bytes of a row.
 *
 * The members of a group run one list. Its collectives are numbered from 1. Who has waited for
 * collective n of the others knows that all of them have run their lists up to the signal of n, and
 * nothing more. So a use of memory that both a member and others access needs to know the
 * collective by which the last use by the other side is over: a read, that of the last write; a
 * write, that of the last read as well. What a row reads and writes, and when it waits and signals,
 * its columns say (moves.c proves these). Since all run one list, what others do in a member's
 * memory is what it does in theirs. */
#ifndef PEN_IN_USE_H
#define PEN_IN_USE_H

#include "runtime/plan/plan.h"

/* Who uses a part of a member's memory. */
enum pen_user { PEN_OWN, PEN_OTHERS, PEN_USERS };

/* A part of memory: the collective whose signal ends the last read, or write, by each; 0: none. */
struct pen_in_use {
  uint32_t read[PEN_USERS], written[PEN_USERS];
};

/* A place in the list: the collectives before it, and those that the others are known to have
 * ended. */
struct pen_signals {
  uint32_t ended, known;
};

/* Uses a part. Returns null, or what is wrong, as the end of a sentence: "which ...". */
static inline const char *pen_use(struct pen_in_use *part, enum pen_user user, bool writes,
                                  struct pen_signals at) {
  const enum pen_user other = user == PEN_OWN ? PEN_OTHERS : PEN_OWN;
  if (part->written[other] > at.known) return "which others may still write";
  if (writes && part->read[other] > at.known) return "which others may still read";
  (writes ? part->written : part->read)[user] = at.ended + 1;
  return NULL;
}

/* The wait of a row of a program. */
static inline void pen_signals_wait(struct pen_signals *signals, const struct pen_collective *row) {
  const uint32_t awaited = row->group == PEN_TENSOR ? signals->ended : row->awaited;
  if (row->waits && awaited > signals->known) signals->known = awaited;
}

/* Its signal. What others have written has come when they have signalled, too. */
static inline void pen_signals_give(struct pen_signals *signals, const struct pen_collective *row,
                                    bool others_write) {
  signals->ended += row->completes;
  if (others_write) signals->known = signals->ended;
}

#endif
