/* symbolic.c: executes an order of actions on symbols. */
#include "tests/support/symbolic.h"

enum communication { PUTS, PAIR_LANES, RANK_LANES, MODELS };

/* What one microbatch of one stage has; 0: nothing yet. */
struct buffer {
  uint64_t input, output, gradient, input_gradient; /* gradient: of the output */
  uint64_t kept;                                    /* what W needs: set by I, used up by W */
};

/* A word that talks, as it waits for its mate. */
struct talk {
  uint32_t from, to, sequence; /* among its pair's sends, or receives */
  bool sends, ended;
};

struct symbolic {
  const struct words *words;
  enum communication model;
  uint32_t ranks, stages, microbatches;
  uint32_t *next;             /* [rank] word to run */
  struct talk **talk;         /* [rank][word] */
  uint64_t **carried;         /* [pair][sequence] what the message holds; 0: not sent */
  bool **may;                 /* [pair][sequence] puts: its receive was reached */
  uint32_t *sends, *receives; /* [pair] in all */
  struct buffer *buffer;      /* [stage][microbatch] */
  uint64_t *sum;              /* [stage] of weight gradients; and one more, of losses */
  bool wrong;
};

static uint64_t mixed(uint64_t a, uint64_t b, uint64_t c) {
  uint64_t x = a * 0x9E3779B97F4A7C15u ^ (b + 0x7F4A7C15u) * 0xBF58476D1CE4E5B9u ^
               (c + 1) * 0x94D049BB133111EBu;
  x ^= x >> 31;
  x *= 0xD6E8FEB86659FD93u;
  x ^= x >> 29;
  return x ? x : 1;
}

static struct buffer *buffer_of(struct symbolic *s, uint32_t stage, uint32_t microbatch) {
  return &s->buffer[(size_t)stage * s->microbatches + microbatch];
}

static bool talks(int kind) { return kind >= PEN_SEND_F && kind <= PEN_RECV_B; }

/* The stage that a word's message comes from or goes to; PEN_NONE: there is none. */
static uint32_t neighbour(const struct symbolic *s, const struct word *w) {
  bool up = w->kind == PEN_SEND_F || w->kind == PEN_RECV_B;
  if (up) return w->stage + 1 < s->stages ? w->stage + 1 : PEN_NONE;
  return w->stage > 0 ? w->stage - 1 : PEN_NONE;
}

/* Numbers the messages of every pair; false: a word names a rank that does not exist, or a message
 * that its rank does not have. */
static bool index_words(struct symbolic *s) {
  const uint32_t *rank_of = s->words->partition->rank_of;
  for (uint32_t rank = 0; rank < s->ranks; rank++) {
    s->talk[rank] = pen_new(s->words->count[rank] + 1u, sizeof **s->talk);
    for (uint32_t i = 0; i < s->words->count[rank]; i++) {
      const struct word *w = &s->words->word[rank][i];
      if (w->stage >= s->stages || w->microbatch >= s->microbatches || rank_of[w->stage] != rank)
        return false;
      if (w->overlaps &&
          (talks(w->kind) || i + 1 == s->words->count[rank] || talks(w[1].kind) || w[1].overlaps))
        return false;
      if (!talks(w->kind)) continue;
      uint32_t other = neighbour(s, w);
      if (other == PEN_NONE || rank_of[other] == rank) return false;
      bool sends = w->kind == PEN_SEND_F || w->kind == PEN_SEND_B;
      uint32_t from = sends ? rank : rank_of[other], to = sends ? rank_of[other] : rank,
               pair = from * s->ranks + to;
      s->talk[rank][i] =
          (struct talk){from, to, sends ? s->sends[pair]++ : s->receives[pair]++, sends, false};
    }
  }
  for (uint32_t pair = 0; pair < s->ranks * s->ranks; pair++) {
    if (s->sends[pair] != s->receives[pair]) return false;
    s->carried[pair] = pen_new(s->sends[pair] + 1u, sizeof **s->carried);
    s->may[pair] = pen_new(s->sends[pair] + 1u, sizeof **s->may);
  }
  return true;
}
/* ---- computation ---- */

/* Whether what a computation reads is there. In its own rank values pass from stage to stage in
 * place. */
static bool has_needs(struct symbolic *s, const struct word *w) {
  const struct buffer *own = buffer_of(s, w->stage, w->microbatch);
  if (w->kind == PEN_F) return w->stage == 0 || own->input;
  if (w->kind == PEN_W) return own->kept;
  return own->output && (w->stage + 1 == s->stages || own->gradient);
}

static void compute_word(struct symbolic *s, const struct word *w) {
  const uint32_t *rank_of = s->words->partition->rank_of;
  struct buffer *own = buffer_of(s, w->stage, w->microbatch);
  bool last = w->stage + 1 == s->stages;
  if (w->kind == PEN_F) {
    if (own->output) s->wrong = true; /* twice */
    own->output = mixed(w->stage, w->stage ? own->input : w->microbatch, 1);
    if (last)
      s->sum[s->stages] += mixed(own->output, w->microbatch, 4);
    else if (rank_of[w->stage + 1] == rank_of[w->stage])
      buffer_of(s, w->stage + 1, w->microbatch)->input = own->output;
    return;
  }
  if (w->kind != PEN_W) {
    if (own->input_gradient) s->wrong = true;
    own->input_gradient = mixed(own->output, last ? w->microbatch : own->gradient, 2);
    own->kept = mixed(own->output, own->input_gradient, 3);
    if (w->stage > 0 && rank_of[w->stage - 1] == rank_of[w->stage])
      buffer_of(s, w->stage - 1, w->microbatch)->gradient = own->input_gradient;
  }
  if (w->kind == PEN_W || w->kind == PEN_B) {
    s->sum[w->stage] += own->kept;
    own->kept = 0;
  }
}
/* ---- communication ---- */

static uint64_t *sent_value(struct symbolic *s, const struct word *w) {
  struct buffer *own = buffer_of(s, w->stage, w->microbatch);
  switch (w->kind) {
    case PEN_SEND_F: return &own->output;
    case PEN_SEND_B: return &own->input_gradient;
    case PEN_RECV_F: return &own->input;
    default: return &own->gradient;
  }
}

/* Whether a message may pass now. `rank` and `i` are of either end; rendezvous looks for the other.
 */
static bool heads_its_lane(const struct symbolic *s, uint32_t rank, uint32_t i) {
  const struct talk *own = &s->talk[rank][i];
  for (uint32_t before = 0; before < i; before++) {
    const struct talk *t = &s->talk[rank][before];
    if (!talks(s->words->word[rank][before].kind) || t->ended) continue;
    if (s->model == RANK_LANES || (t->from == own->from && t->to == own->to)) return false;
  }
  return true;
}

/* Lets a send that is in its lane meet its receive. */
static bool match_send(struct symbolic *s, uint32_t rank, uint32_t i) {
  struct talk *own = &s->talk[rank][i];
  if (own->ended || !own->sends || !heads_its_lane(s, rank, i)) return false;
  for (uint32_t j = 0; j < s->next[own->to]; j++) {
    struct talk *other = &s->talk[own->to][j];
    if (!talks(s->words->word[own->to][j].kind) || other->sends || other->ended ||
        other->from != rank || other->sequence != own->sequence)
      continue;
    if (!heads_its_lane(s, own->to, j)) return false;
    *sent_value(s, &s->words->word[own->to][j]) =
        s->carried[own->from * s->ranks + own->to][own->sequence];
    own->ended = other->ended = true;
    return true;
  }
  return false;
}

/* Runs a rank's next word, or pair; false: it must wait. */
static bool run_word(struct symbolic *s, uint32_t rank) {
  uint32_t i = s->next[rank];
  if (i == s->words->count[rank]) return false;
  const struct word *w = &s->words->word[rank][i];
  if (!talks(w->kind)) {
    if (!has_needs(s, w) || (w->overlaps && !has_needs(s, w + 1))) return false;
    compute_word(s, w);
    if (w->overlaps) compute_word(s, w + 1);
    s->next[rank] += w->overlaps ? 2 : 1;
    return true;
  }
  struct talk *t = &s->talk[rank][i];
  uint32_t pair = t->from * s->ranks + t->to;
  if (t->sends) {
    if (s->model == PUTS && !s->may[pair][t->sequence]) return false;
    if (!*sent_value(s, w)) s->wrong = true; /* nothing there to send */
    s->carried[pair][t->sequence] = *sent_value(s, w);
  } else {
    s->may[pair][t->sequence] = true;
  }
  s->next[rank]++;
  return true;
}

/* Puts: what has been sent, to where it was let in, is there. */
static bool deliver_put(struct symbolic *s, uint32_t rank, uint32_t i) {
  struct talk *t = &s->talk[rank][i];
  uint64_t value = t->sends || t->ended ? 0 : s->carried[t->from * s->ranks + t->to][t->sequence];
  if (!value) return false;
  *sent_value(s, &s->words->word[rank][i]) = value;
  t->ended = true;
  return true;
}

/* Runs all words; false: some never run, or a value is missing or made twice. */
static bool run_words(const struct words *words, enum communication model, uint64_t *sum) {
  const struct pen_partition *p = words->partition;
  size_t pairs = (size_t)p->rank_count * p->rank_count;
  struct symbolic s = {
      .words = words,
      .model = model,
      .ranks = p->rank_count,
      .stages = p->stage_count,
      .microbatches = p->microbatch_count,
      .next = pen_new(p->rank_count, 4),
      .talk = pen_new(p->rank_count, sizeof *s.talk),
      .carried = pen_new(pairs, sizeof *s.carried),
      .may = pen_new(pairs, sizeof *s.may),
      .sends = pen_new(pairs, 4),
      .receives = pen_new(pairs, 4),
      .buffer = pen_new((size_t)p->stage_count * p->microbatch_count, sizeof *s.buffer),
      .sum = sum};
  if (!index_words(&s)) return false;
  for (bool moved = true; moved && !s.wrong;) {
    moved = false;
    for (uint32_t rank = 0; rank < s.ranks; rank++) {
      while (run_word(&s, rank)) moved = true;
      for (uint32_t i = 0; i < s.next[rank]; i++)
        if (talks(words->word[rank][i].kind))
          moved |= model == PUTS ? deliver_put(&s, rank, i) : match_send(&s, rank, i);
    }
  }
  for (uint32_t rank = 0; rank < s.ranks; rank++)
    if (s.next[rank] < words->count[rank]) return false;
  for (uint32_t rank = 0; rank < s.ranks; rank++)
    for (uint32_t i = 0; i < words->count[rank]; i++)
      if (talks(words->word[rank][i].kind) && !s.talk[rank][i].sends && !s.talk[rank][i].ended)
        return false;
  return !s.wrong;
}

bool trains_right(const struct words *words) {
  const struct pen_partition *p = words->partition;
  uint64_t *wanted = pen_new(p->stage_count + 1u, sizeof *wanted);
  for (uint32_t m = 0; m < p->microbatch_count; m++) {
    uint64_t *output = pen_new(p->stage_count, sizeof *output), gradient = m;
    for (uint32_t stage = 0; stage < p->stage_count; stage++)
      output[stage] = mixed(stage, stage ? output[stage - 1] : m, 1);
    wanted[p->stage_count] += mixed(output[p->stage_count - 1], m, 4);
    for (uint32_t stage = p->stage_count; stage-- > 0;) {
      gradient = mixed(output[stage], gradient, 2);
      wanted[stage] += mixed(output[stage], gradient, 3);
    }
  }
  for (int model = 0; model < MODELS; model++) {
    uint64_t *sum = pen_new(p->stage_count + 1u, sizeof *sum);
    if (!run_words(words, (enum communication)model, sum) ||
        memcmp(sum, wanted, (p->stage_count + 1u) * sizeof *sum))
      return false;
  }
  return true;
}
