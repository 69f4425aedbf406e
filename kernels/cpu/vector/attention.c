/* attention.c: ATTENTION and ATTENTION_CACHED, and the same of fused products (_QKV), which are
 * causal, and ATTENTION_FULL: grouped-query, by blocks, with an online softmax (Milakov 2018; Dao
 * et al. 2022).
 *
 * Loops: sequence, key-value head, query head of its group, block of QUERY_BLOCK queries, block of
 * KEY_BLOCK keys. A pair of blocks takes three steps: scores = q k^T in tiles; each row of scores
 * becomes 2^(score - maximum of the row), and when the maximum grows, the row's sum and output are
 * scaled down; output += powers v, in tiles. Tiles after the diagonal, and before the document or
 * the window of the queries, are skipped; those on the boundary are masked. Queries are copied with
 * the factor log2(e)/sqrt(head_dim), since a power of two costs half as much as one of e.
 *
 * With pairs of bf16 (tile.h) queries are copied unchanged and scores are multiplied by the factor;
 * powers are summed in f32 and then rounded to bf16, as in kernels/cuda/attention_bf16.cu.
 *
 *   workspace, of each thread
 *              keys   [padded/PANEL][steps of head_dim][PANEL]   transposed, for a key-value head
 *              values [steps of padded][stride]
 *              query  [QUERY_BLOCK][stride of steps]             f32: times the factor
 *              output [QUERY_BLOCK][stride]
 *              scores [QUERY_BLOCK][KEY_BLOCK + LINE]            then the powers
 */
#include <math.h>

#include "kernels/cpu/threads.h"
#include "kernels/cpu/vector/functions.h"
#include "kernels/cpu/vector/isa.h"
#include "kernels/cpu/vector/step_functions.h"
#include "kernels/cpu/vector/tile.h"
#include "kernels/cpu/vector/visible_keys.h"

enum {
  QUERY_BLOCK = NUMBERS == 1 ? 24 : 32,
  KEY_BLOCK = 288,
  SCORE_STRIDE = KEY_BLOCK + LINE,
};
_Static_assert(KEY_BLOCK % PANEL == 0 && QUERY_BLOCK % ROWS == 0, "blocks are whole tiles");
_Static_assert(NUMBERS == 1 || LANES % ROWS == 0,
               "the last keys that a tile's queries see stand in one vector");

struct attention_block {
  element *key_panels, *values;
  struct visible_keys see;
  element *query;
  float *output, *scores;
  float most[QUERY_BLOCK], sum[QUERY_BLOCK]; /* over the keys so far, by query */
  float factor; /* with pairs: the factor of scores, log2(e)/sqrt(head_dim) */
  float cap;    /* of scores as they are computed; 0: none */
  size_t head_dim, stride, query_stride;
  size_t query_count;
  struct ahead next_query, own_output;
};

/* How many keys of the block that starts at `first` are not after those that the row's query sees.
 */
static size_t visible(const struct attention_block *b, size_t row, size_t first) {
  return keys_before(past_key(&b->see, row), first, KEY_BLOCK);
}

/* How many keys of the block that starts at `first` are before those that the row's query sees. */
static size_t hidden(const struct attention_block *b, size_t row, size_t first) {
  return keys_before(first_key_of(&b->see, row), first, KEY_BLOCK);
}

static void compute_scores(const struct attention_block *b, size_t first_key) {
  static const float no_offset[ROWS];
  const size_t end = visible(b, b->query_count - 1, first_key), steps = steps_of(b->head_dim);
  for (size_t j = 0; j < end; j += PANEL)
    for (size_t r = 0; r < b->query_count; r += ROWS)
      if (b->see.first_query + r + ROWS + b->see.later > first_key + j &&
          hidden(b, r, first_key) < j + PANEL)
        (b->query_count == 1 ? product_row : product)(
            b->scores + r * SCORE_STRIDE + j, SCORE_STRIDE, steps, b->query + r * b->query_stride,
            b->query_stride, b->key_panels + (first_key + j) * steps, no_offset);
}

/* Caps the scores of a row from `begin` to `count`, as vectors, and gives hidden keys -infinity. */
TILE_FUNCTION void adjust_row(const struct attention_block *b, float *s, size_t first_key,
                              size_t begin, size_t count) {
  const float unit = 1.0f / b->cap;
  for (size_t j = begin; j < count; j += LANES) {
    vf x = load(s + j);
    if (b->cap > 0) x = step_tanh(x * unit) * b->cap;
    if (b->see.mask)
      x = choose(shown_keys(&b->see, first_key + j, first_key + count), x, splat(-INFINITY));
    store(s + j, x);
  }
}

/* `many` vectors of scores s become powers p = 2^(factor (s - maximum)); shift = factor * maximum.
 * Returns sum plus the powers before they are rounded. clear_hidden() clears powers of hidden keys
 * whose score is not -infinity. */
#ifdef TILE_PAIRS
inline_always vf exponentiate_vectors(bf16 *p, const float *s, size_t many, float factor,
                                      float shift, vf sum) {
  vf x[POWERS];
  UNROLL
  for (size_t i = 0; i < many; i++)
    x[i] = power_of_two_roughly(madd(load(s + i * LANES), splat(factor), splat(-shift)));
  UNROLL
  for (size_t i = 0; i < many; i++) {
    store(p + i * LANES, x[i]);
    sum += x[i];
  }
  return sum;
}

inline_always void clear_hidden(bf16 *p, size_t begin, size_t from, size_t count, size_t end) {
  (void)count,
      (void)end; /* in one vector, because the queries of a tile start at a multiple of ROWS */
  for (size_t j = begin; j + LANES <= from; j += LANES) store(p + j, splat(0.0f));
}
#else
inline_always vf exponentiate_vectors(float *p, const float *s, size_t many, float factor,
                                      float shift, vf sum) {
  vf x[POWERS];
  (void)factor; /* 1 */
  UNROLL
  for (size_t i = 0; i < many; i++) x[i] = load(s + i * LANES) - shift;
  powers_of_two(x, many);
  UNROLL
  for (size_t i = 0; i < many; i++) {
    store(p + i * LANES, x[i]);
    sum += x[i];
  }
  return sum;
}

inline_always void clear_hidden(float *p, size_t begin, size_t from, size_t count, size_t end) {
  mask(p, begin, from, count, end, 0.0f);
}
#endif

/* One row of scores from `begin` to `end`: those from `from` to `count` become powers, the others
 * 0. */
static void online_softmax_row(struct attention_block *b, size_t row, size_t first_key,
                               size_t begin, size_t from, size_t count, size_t end) {
  float *s = b->scores + row * SCORE_STRIDE;
  number *p = (number *)s; /* p is never written before s is read there */
  size_t j = from / LANES * LANES;
  if (b->cap > 0 || b->see.mask) adjust_row(b, s, first_key, j, count);
  mask(s, j, from, count, count, -INFINITY);
  vf high = splat(b->most[row]), sum = {0};
  for (size_t i = j; i < count; i += LANES) high = maximum(load(s + i), high);
  const float most = lanes_maximum(high), shift = most * b->factor;
  for (; j + (POWERS - 1) * LANES < count; j += POWERS * LANES)
    sum = exponentiate_vectors(p + j, s + j, POWERS, b->factor, shift, sum);
  for (; j < count; j += LANES) sum = exponentiate_vectors(p + j, s + j, 1, b->factor, shift, sum);
  clear_hidden(p, begin, from, count, end);
  if (b->sum[row] != 0) { /* 0: these are the first keys */
    const float shrink = exp2f((b->most[row] - most) * b->factor);
    b->sum[row] *= shrink;
    for (size_t i = 0; i < b->stride; i += LANES)
      store(b->output + row * b->stride + i, load(b->output + row * b->stride + i) * shrink);
  }
  b->most[row] = most;
  b->sum[row] += lanes_sum(sum);
}

static void attend_key_block(struct attention_block *b, size_t first_key) {
  compute_scores(b, first_key);
  for (size_t r = 0; r < b->query_count; r += ROWS) {
    const size_t last = least(r + ROWS, b->query_count) - 1;
    const size_t end = visible(b, last, first_key), begin = hidden(b, r, first_key) / LANES * LANES;
    for (size_t row = r; row <= last && begin < end; row++) {
      const size_t count = visible(b, row, first_key), from = hidden(b, row, first_key);
      if (from < count)
        online_softmax_row(b, row, first_key, begin, from, count, end);
      else
        memset((number *)(b->scores + row * SCORE_STRIDE) + begin, 0,
               (end - begin) * sizeof(number));
    }
  }
  for (size_t c = 0; c < b->head_dim; c += PANEL)
    for (size_t r = 0; r < b->query_count; r += ROWS) {
      const size_t end = visible(b, least(r + ROWS, b->query_count) - 1, first_key);
      const size_t begin = hidden(b, r, first_key) / LANES * LANES;
      if (first_key + KEY_BLOCK >= past_key(&b->see, 0)) {
        const size_t step = (c / PANEL * QUERY_BLOCK + r) / ROWS;
        prefetch_ahead(&b->next_query, step), prefetch_ahead(&b->own_output, step);
      }
      if (begin < end)
        (b->query_count == 1 ? product_add_row : product_add)(
            b->output + r * b->stride + c, b->stride, steps_of(end - begin),
            (const element *)(b->scores + r * SCORE_STRIDE) + begin / NUMBERS, SCORE_STRIDE,
            b->values + (first_key + begin) / NUMBERS * b->stride + c, b->stride);
    }
}

static void load_queries(struct attention_block *b, const stored *q, size_t q_row,
                         size_t query_count) {
  const size_t padded = round_up(query_count, query_count == 1 ? 1 : ROWS); /* what tiles read */
  b->query_count = query_count;
  copy_rows(b->query, q, q_row, query_count, padded, b->head_dim,
            (float)(M_LOG2E / sqrt((double)b->head_dim)));
  memset(b->output, 0, padded * b->stride * sizeof(float));
  for (size_t r = 0; r < padded; r++) b->most[r] = -INFINITY, b->sum[r] = 0;
}

static void write_output(const struct attention_block *b, stored *o, size_t o_row, float *lse) {
  for (size_t r = 0; r < b->query_count; r++) {
    const int sees = !b->see.mask || b->sum[r] != 0;
    const float factor = sees ? 1.0f / b->sum[r] : 0;
    for (size_t i = 0; i < b->head_dim; i += LANES)
      store_n(o + r * o_row + i, load(b->output + r * b->stride + i) * factor, b->head_dim - i);
    lse[r] =
        sees ? (float)((double)b->most[r] * (double)b->factor * M_LN2 + log((double)b->sum[r])) : 0;
  }
}

/* Takes the buffers of one thread from the workspace, for `positions` keys. */
static struct attention_block divide_workspace(const struct pen_call *call, size_t positions,
                                               float **space) {
  const size_t head_dim = (size_t)call->dim[4];
  struct attention_block b = {
      .head_dim = head_dim,
      .see.keys = positions,
      .stride = copy_stride(head_dim),
      .query_stride = copy_stride(steps_of(head_dim)),
      .factor = NUMBERS == 1 ? 1.0f : (float)(M_LOG2E / sqrt((double)head_dim))};
  b.cap = (float)(call->real[0] * M_LOG2E) / b.factor;
  b.key_panels = allocate_lines(space, round_up(positions, PANEL) * steps_of(head_dim));
  b.values = allocate_lines(space, steps_of(round_up(positions, PANEL)) * b.stride);
  b.query = allocate_lines(space, QUERY_BLOCK * b.query_stride);
  b.output = allocate_lines(space, QUERY_BLOCK * b.stride);
  b.scores = allocate_lines(space, QUERY_BLOCK * SCORE_STRIDE);
  return b;
}

static struct attention_block block_of_thread(const struct pen_call *call, size_t positions,
                                              size_t thread) {
  float *space = call->workspace;
  for (; thread > 0; thread--) divide_workspace(call, positions, &space);
  return divide_workspace(call, positions, &space);
}

/* Copies a key-value head with `seen` keys, rows k_row apart. */
static void load_head(const struct attention_block *b, const stored *k, const stored *v,
                      size_t k_row, size_t seen) {
  copy_panels(b->key_panels, k, k_row, seen, round_up(seen, PANEL), b->head_dim);
  copy_steps(b->values, v, k_row, seen, seen, b->head_dim);
}

/* Whether the block of keys that starts at `first` has one that is not hidden. */
static int shows_any(const struct attention_block *b, size_t first) {
  const size_t past = least(first + KEY_BLOCK, b->see.keys);
  int any = !b->see.mask;
  for (size_t key = first; !any && key < past; key++) any = b->see.mask[key] != 0;
  return any;
}

/* Computes a block of queries from q to o and lse. */
static void attend_queries(struct attention_block *b, const stored *q, size_t q_row, stored *o,
                           size_t o_row, size_t query_count, float *lse) {
  load_queries(b, q, q_row, query_count);
  for (size_t key = first_key_of(&b->see, 0) / KEY_BLOCK * KEY_BLOCK;
       key < past_key(&b->see, query_count - 1); key += KEY_BLOCK)
    if (shows_any(b, key)) attend_key_block(b, key);
  write_output(b, o, o_row, lse);
}

/* The operands, and the elements between positions of q and of k and v. */
struct attention_call {
  const struct pen_call *call;
  const stored *q, *k, *v;
  struct visible_keys see; /* starts and mask of all sequences */
  stored *o;
  float *lse;
  size_t q_row, k_row;
};

/* A tile is a block of queries of a head of a sequence. */
static void attend_tiles(const void *context, size_t thread, size_t first, size_t past) {
  const struct attention_call *p = context;
  const struct pen_call *call = p->call;
  const size_t sequence = (size_t)call->dim[1], heads = (size_t)call->dim[2],
               kv_heads = (size_t)call->dim[3], head_dim = (size_t)call->dim[4];
  const size_t o_row = heads * head_dim, group = heads / kv_heads,
               blocks = (sequence + QUERY_BLOCK - 1) / QUERY_BLOCK;
  struct attention_block b = block_of_thread(call, p->see.keys, thread);
  b.see = p->see;
  for (size_t tile = first; tile < past; tile++) {
    const size_t i = tile / blocks, row = i / heads * sequence, head = i % heads,
                 key = i / heads * p->see.keys;
    if (tile == first || tile % (group * blocks) == 0) {
      const size_t at = key * p->k_row + head / group * head_dim;
      load_head(&b, p->k + at, p->v + at, p->k_row, p->see.keys);
    }
    b.see.starts = p->see.starts ? p->see.starts + row : NULL;
    b.see.mask = p->see.mask ? p->see.mask + key : NULL;
    b.see.first_query = tile % blocks * QUERY_BLOCK;
    const size_t q_at = (row + b.see.first_query) * p->q_row + head * head_dim,
                 o_at = (row + b.see.first_query) * o_row + head * head_dim,
                 count = least(QUERY_BLOCK, sequence - b.see.first_query);
    const struct next_block next = block_after(QUERY_BLOCK, q_at, p->q_row, b.see.first_query,
                                               sequence, head, heads, head_dim);
    b.next_query = (struct ahead){p->q + next.at, p->q_row, next.rows, head_dim};
    b.own_output = (struct ahead){p->o + o_at, o_row, count, head_dim};
    attend_queries(&b, p->q + q_at, p->q_row, p->o + o_at, o_row, count,
                   p->lse + i * sequence + b.see.first_query);
  }
}

static void attend(const struct attention_call *p) {
  const int64_t *dim = p->call->dim;
  pen_parallel_for(
      (size_t)dim[0] * (size_t)dim[2] * (((size_t)dim[1] + QUERY_BLOCK - 1) / QUERY_BLOCK),
      attend_tiles, p);
}

/* ATTENTION and ATTENTION_FULL, whose operand 3 is starts or mask. */
static void attend_operands(const struct pen_call *call, struct visible_keys see) {
  attend(&(struct attention_call){.call = call,
                                  .q = call->operand[0],
                                  .k = call->operand[1],
                                  .v = call->operand[2],
                                  .see = see,
                                  .o = call->operand[4],
                                  .lse = call->operand[5],
                                  .q_row = (size_t)(call->dim[2] * call->dim[4]),
                                  .k_row = (size_t)(call->dim[3] * call->dim[4])});
}

void PEN_NAME(attention)(const struct pen_call *call) {
  attend_operands(call, causal_keys(call, call->operand[3]));
}

void PEN_NAME(attention_full)(const struct pen_call *call) {
  attend_operands(call, all_keys(call, call->operand[3]));
}

void PEN_NAME(attention_qkv)(const struct pen_call *call) {
  const int64_t heads = call->dim[2], kv_heads = call->dim[3], head_dim = call->dim[4];
  const stored *qkv = call->operand[0];
  const size_t row = (size_t)(call->dim[6] * head_dim);
  attend(&(struct attention_call){.call = call,
                                  .q = qkv,
                                  .k = qkv + heads * head_dim,
                                  .v = qkv + (heads + kv_heads) * head_dim,
                                  .see = causal_keys(call, call->operand[1]),
                                  .o = call->operand[2],
                                  .lse = call->operand[3],
                                  .q_row = row,
                                  .k_row = row});
}

/* ---- over a cache ---- */

/* The operands of a call, and the elements between positions of q, and of k and v. */
struct cached_call {
  const struct pen_call *call;
  const stored *q, *k, *v;
  const int32_t *starts, *slot;
  stored *o, *keys, *values;
  size_t q_row, k_row;
};

/* One sequence, whose first query has position `first`; `keys` and `values` are those of its slot.
 */
struct cached_sequence {
  const struct cached_call *of;
  const stored *keys, *values, *q;
  stored *o;
  size_t first;
};

/* A tile is a head. */
static void attend_cached(const void *context, size_t thread, size_t first_head, size_t past_head) {
  const struct cached_sequence *s = context;
  const struct pen_call *call = s->of->call;
  const size_t heads = (size_t)call->dim[2], kv_heads = (size_t)call->dim[3],
               head_dim = (size_t)call->dim[4], seen = s->first + (size_t)call->dim[1];
  const size_t q_row = s->of->q_row, o_row = heads * head_dim, group = heads / kv_heads;
  struct attention_block b = block_of_thread(call, (size_t)call->dim[7], thread);
  b.see.window = (size_t)call->dim[5];
  float lse[QUERY_BLOCK];
  for (size_t head = first_head; head < past_head; head++) {
    if (head == first_head || head % group == 0) {
      const size_t at = head / group * head_dim;
      load_head(&b, s->keys + at, s->values + at, kv_heads * head_dim, seen);
    }
    for (b.see.first_query = s->first; b.see.first_query < seen; b.see.first_query += QUERY_BLOCK) {
      const size_t row = b.see.first_query - s->first, at = head * head_dim;
      attend_queries(&b, s->q + row * q_row + at, q_row, s->o + row * o_row + at, o_row,
                     least(QUERY_BLOCK, seen - b.see.first_query), lse);
    }
  }
}

/* A query's result depends on its position and on the keys and values up to there alone, so it has
 * the bits of ATTENTION's. With pairs, queries of a tile start at a multiple of ROWS here too. */
_Static_assert(PEN_CACHED_CHUNK % ROWS == 0 || NUMBERS == 1, "several queries start at a tile");

/* Writes `rows` rows of a sequence to its slot. */
static void write_cache(stored *to, const stored *from, size_t from_row, size_t rows,
                        size_t width) {
  for (size_t r = 0; r < rows; r++) memcpy(to + r * width, from + r * from_row, width * sizeof *to);
}

static void attend_over_cache(const struct cached_call *p) {
  const int64_t *dim = p->call->dim;
  const size_t batch = (size_t)dim[0], sequence = (size_t)dim[1], positions = (size_t)dim[7],
               width = (size_t)(dim[3] * dim[4]), o_size = sequence * (size_t)(dim[2] * dim[4]);
  for (size_t i = 0; i < batch; i++) {
    stored *const o = p->o + i * o_size;
    if (p->slot[i] < 0) {
      memset(o, 0, o_size * sizeof *o);
      continue;
    }
    const size_t first = (size_t)-p->starts[i * sequence],
                 slot = (size_t)p->slot[i] * positions * width, from = i * sequence * p->k_row;
    stored *const keys = p->keys + slot, *const values = p->values + slot;
    write_cache(keys + first * width, p->k + from, p->k_row, sequence, width);
    write_cache(values + first * width, p->v + from, p->k_row, sequence, width);
    const struct cached_sequence s = {p, keys, values, p->q + i * sequence * p->q_row, o, first};
    pen_parallel_for((size_t)dim[2], attend_cached, &s);
  }
}

void PEN_NAME(attention_cached)(const struct pen_call *call) {
  attend_over_cache(&(struct cached_call){.call = call,
                                          .q = call->operand[0],
                                          .k = call->operand[1],
                                          .v = call->operand[2],
                                          .starts = call->operand[3],
                                          .slot = call->operand[4],
                                          .o = call->operand[5],
                                          .keys = call->operand[6],
                                          .values = call->operand[7],
                                          .q_row = (size_t)(call->dim[2] * call->dim[4]),
                                          .k_row = (size_t)(call->dim[3] * call->dim[4])});
}

void PEN_NAME(attention_cached_qkv)(const struct pen_call *call) {
  const int64_t heads = call->dim[2], kv_heads = call->dim[3], head_dim = call->dim[4];
  const stored *qkv = call->operand[0];
  const size_t row = (size_t)(call->dim[8] * head_dim);
  attend_over_cache(&(struct cached_call){.call = call,
                                          .q = qkv,
                                          .k = qkv + heads * head_dim,
                                          .v = qkv + (heads + kv_heads) * head_dim,
                                          .starts = call->operand[1],
                                          .slot = call->operand[2],
                                          .o = call->operand[3],
                                          .keys = call->operand[4],
                                          .values = call->operand[5],
                                          .q_row = row,
                                          .k_row = row});
}
