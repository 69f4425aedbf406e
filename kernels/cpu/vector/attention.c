/* attention.c: ATTENTION and ATTENTION_CACHED: causal, grouped-query, by blocks, with an online
 * softmax (Milakov 2018; Dao et al. 2022).
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
 *   workspace  keys   [padded/PANEL][steps of head_dim][PANEL]   transposed, for a key-value head
 *              values [steps of padded][stride]
 *              query  [QUERY_BLOCK][stride of steps]             f32: times the factor
 *              output [QUERY_BLOCK][stride]
 *              scores [QUERY_BLOCK][KEY_BLOCK + LINE]            then the powers
 */
#include <math.h>

#include "kernels/cpu/vector/functions.h"
#include "kernels/cpu/vector/isa.h"
#include "kernels/cpu/vector/tile.h"

enum {
  QUERY_BLOCK = NUMBERS == 1 ? 24 : 32,
  KEY_BLOCK = 288,
  SCORE_STRIDE = KEY_BLOCK + LINE,
};
_Static_assert(KEY_BLOCK % PANEL == 0 && QUERY_BLOCK % ROWS == 0, "blocks are whole tiles");
_Static_assert(NUMBERS == 1 || LANES % ROWS == 0,
               "the last keys that a tile's queries see stand in one vector");

struct attention_block {
  const element *keys, *values;
  const int32_t *starts; /* the starts of the sequence; null: one document */
  element *query;
  float *output, *scores;
  float most[QUERY_BLOCK], sum[QUERY_BLOCK]; /* over the keys so far, by query */
  float factor; /* with pairs: the factor of scores, log2(e)/sqrt(head_dim) */
  size_t head_dim, stride, query_stride, window;
  size_t first_query, query_count;
  struct ahead next_query, own_output;
};

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* How many keys of the block that starts at `first` are not after the query. */
static size_t visible(size_t query, size_t first) {
  return query < first ? 0 : least(query - first + 1, KEY_BLOCK);
}

/* The first key that a row's query sees, of its document and its window; it rises from row to row.
 */
static size_t start_of(const struct attention_block *b, size_t row) {
  const size_t query = b->first_query + row, start = b->starts ? (size_t)b->starts[query] : 0,
               of_window = query < b->window ? 0 : query + 1 - b->window;
  return start > of_window ? start : of_window;
}

/* How many keys of the block that starts at `first` are before those that the row's query sees. */
static size_t hidden(const struct attention_block *b, size_t row, size_t first) {
  const size_t start = start_of(b, row);
  return start < first ? 0 : least(start - first, KEY_BLOCK);
}

static void compute_scores(const struct attention_block *b, size_t first_key) {
  static const float no_offset[ROWS];
  const size_t end = visible(b->first_query + b->query_count - 1, first_key),
               steps = steps_of(b->head_dim);
  for (size_t j = 0; j < end; j += PANEL)
    for (size_t r = 0; r < b->query_count; r += ROWS)
      if (b->first_query + r + ROWS > first_key + j && hidden(b, r, first_key) < j + PANEL)
        product(b->scores + r * SCORE_STRIDE + j, SCORE_STRIDE, steps,
                b->query + r * b->query_stride, b->query_stride, b->keys + (first_key + j) * steps,
                no_offset);
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
static void online_softmax_row(struct attention_block *b, size_t row, size_t begin, size_t from,
                               size_t count, size_t end) {
  float *s = b->scores + row * SCORE_STRIDE;
  number *p = (number *)s; /* p is never written before s is read there */
  size_t j = from / LANES * LANES;
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
    const size_t end = visible(b->first_query + last, first_key),
                 begin = hidden(b, r, first_key) / LANES * LANES;
    for (size_t row = r; row <= last && begin < end; row++) {
      const size_t count = visible(b->first_query + row, first_key),
                   from = hidden(b, row, first_key);
      if (from < count)
        online_softmax_row(b, row, begin, from, count, end);
      else
        memset((number *)(b->scores + row * SCORE_STRIDE) + begin, 0,
               (end - begin) * sizeof(number));
    }
  }
  for (size_t c = 0; c < b->head_dim; c += PANEL)
    for (size_t r = 0; r < b->query_count; r += ROWS) {
      const size_t end = visible(b->first_query + least(r + ROWS, b->query_count) - 1, first_key);
      const size_t begin = hidden(b, r, first_key) / LANES * LANES;
      if (first_key + KEY_BLOCK > b->first_query) {
        const size_t step = (c / PANEL * QUERY_BLOCK + r) / ROWS;
        prefetch_ahead(&b->next_query, step), prefetch_ahead(&b->own_output, step);
      }
      if (begin < end)
        product_add(b->output + r * b->stride + c, b->stride, steps_of(end - begin),
                    (const element *)(b->scores + r * SCORE_STRIDE) + begin / NUMBERS, SCORE_STRIDE,
                    b->values + (first_key + begin) / NUMBERS * b->stride + c, b->stride);
    }
}

static void load_queries(struct attention_block *b, const stored *q, size_t q_row,
                         size_t query_count) {
  b->query_count = query_count;
  copy_rows(b->query, q, q_row, query_count, QUERY_BLOCK, b->head_dim,
            (float)(M_LOG2E / sqrt((double)b->head_dim)));
  memset(b->output, 0, QUERY_BLOCK * b->stride * sizeof(float));
  for (size_t r = 0; r < QUERY_BLOCK; r++) b->most[r] = -INFINITY, b->sum[r] = 0;
}

static void write_output(const struct attention_block *b, stored *o, size_t o_row, float *lse) {
  for (size_t r = 0; r < b->query_count; r++) {
    const float factor = 1.0f / b->sum[r];
    for (size_t i = 0; i < b->head_dim; i += LANES)
      store_n(o + r * o_row + i, load(b->output + r * b->stride + i) * factor, b->head_dim - i);
    lse[r] = (float)((double)b->most[r] * (double)b->factor * M_LN2 + log((double)b->sum[r]));
  }
}

void PEN_NAME(attention)(const struct pen_call *call) {
  const size_t batch = (size_t)call->dim[0], sequence = (size_t)call->dim[1],
               heads = (size_t)call->dim[2];
  const size_t kv_heads = (size_t)call->dim[3], head_dim = (size_t)call->dim[4];
  const size_t q_row = heads * head_dim, k_row = kv_heads * head_dim, group = heads / kv_heads;
  const size_t padded = round_up(sequence, PANEL);
  const stored *q = call->operand[0], *k = call->operand[1], *v = call->operand[2];
  const int32_t *starts = call->operand[3];
  stored *o = call->operand[4];
  float *lse = call->operand[5], *space = call->workspace;
  struct attention_block b = {
      .head_dim = head_dim,
      .window = (size_t)call->dim[5],
      .stride = copy_stride(head_dim),
      .query_stride = copy_stride(steps_of(head_dim)),
      .factor = NUMBERS == 1 ? 1.0f : (float)(M_LOG2E / sqrt((double)head_dim))};
  element *keys = allocate_lines(&space, padded * steps_of(head_dim)),
          *values = allocate_lines(&space, steps_of(padded) * b.stride);
  b.keys = keys, b.values = values;
  b.query = allocate_lines(&space, QUERY_BLOCK * b.query_stride);
  b.output = allocate_lines(&space, QUERY_BLOCK * b.stride);
  b.scores = allocate_lines(&space, QUERY_BLOCK * SCORE_STRIDE);
  for (size_t i = 0; i < batch * heads; i++) {
    const size_t row = i / heads * sequence, head = i % heads;
    if (head % group == 0) {
      const size_t at = row * k_row + head / group * head_dim;
      copy_panels(keys, k + at, k_row, sequence, padded, head_dim);
      copy_steps(values, v + at, k_row, sequence, sequence, head_dim);
    }
    b.starts = starts ? starts + row : NULL;
    for (b.first_query = 0; b.first_query < sequence; b.first_query += QUERY_BLOCK) {
      const size_t at = (row + b.first_query) * q_row + head * head_dim;
      load_queries(&b, q + at, q_row, least(QUERY_BLOCK, sequence - b.first_query));
      const struct next_block next =
          block_after(QUERY_BLOCK, at, b.first_query, sequence, head, heads, head_dim);
      b.next_query = (struct ahead){q + next.at, q_row, next.rows, head_dim};
      b.own_output = (struct ahead){o + at, q_row, b.query_count, head_dim};
      for (size_t key = start_of(&b, 0) / KEY_BLOCK * KEY_BLOCK;
           key < b.first_query + b.query_count; key += KEY_BLOCK)
        attend_key_block(&b, key);
      write_output(&b, o + at, q_row, lse + i * sequence + b.first_query);
    }
  }
}

/* ---- over a cache ---- */

/* The sizes of a call. */
struct cached_dims {
  size_t sequence, heads, kv_heads, head_dim, positions;
};

/* All heads of one sequence whose first query has position `first`; `keys` and `values` are those
 * of its slot. */
static void attend_cached(struct attention_block *b, const struct cached_dims *d,
                          element *key_panels, element *value_steps, const stored *keys,
                          const stored *values, const stored *q, stored *o, size_t first) {
  const size_t q_row = d->heads * d->head_dim, k_row = d->kv_heads * d->head_dim,
               group = d->heads / d->kv_heads, seen = first + d->sequence;
  float lse[QUERY_BLOCK];
  for (size_t head = 0; head < d->heads; head++) {
    if (head % group == 0) {
      const size_t at = head / group * d->head_dim;
      copy_panels(key_panels, keys + at, k_row, seen, round_up(seen, PANEL), d->head_dim);
      copy_steps(value_steps, values + at, k_row, seen, seen, d->head_dim);
    }
    for (b->first_query = first; b->first_query < seen; b->first_query += QUERY_BLOCK) {
      const size_t at = (b->first_query - first) * q_row + head * d->head_dim;
      load_queries(b, q + at, q_row, least(QUERY_BLOCK, seen - b->first_query));
      for (size_t key = start_of(b, 0) / KEY_BLOCK * KEY_BLOCK;
           key < b->first_query + b->query_count; key += KEY_BLOCK)
        attend_key_block(b, key);
      write_output(b, o + at, q_row, lse);
    }
  }
}

/* A query's result depends on its position and on the keys and values up to there alone, so it has
 * the bits of ATTENTION's. With pairs, queries of a tile start at a multiple of ROWS here too. */
_Static_assert(PEN_CACHED_CHUNK % ROWS == 0 || NUMBERS == 1, "several queries start at a tile");

void PEN_NAME(attention_cached)(const struct pen_call *call) {
  const struct cached_dims d = {(size_t)call->dim[1], (size_t)call->dim[2], (size_t)call->dim[3],
                                (size_t)call->dim[4], (size_t)call->dim[7]};
  const size_t batch = (size_t)call->dim[0], q_size = d.sequence * d.heads * d.head_dim,
               k_row = d.kv_heads * d.head_dim;
  const stored *q = call->operand[0], *k = call->operand[1], *v = call->operand[2];
  const int32_t *starts = call->operand[3], *slot = call->operand[4];
  stored *o = call->operand[5];
  float *space = call->workspace;
  struct attention_block b = {
      .head_dim = d.head_dim,
      .window = (size_t)call->dim[5],
      .stride = copy_stride(d.head_dim),
      .query_stride = copy_stride(steps_of(d.head_dim)),
      .factor = NUMBERS == 1 ? 1.0f : (float)(M_LOG2E / sqrt((double)d.head_dim))};
  element *keys = allocate_lines(&space, round_up(d.positions, PANEL) * steps_of(d.head_dim)),
          *values = allocate_lines(&space, steps_of(round_up(d.positions, PANEL)) * b.stride);
  b.keys = keys, b.values = values;
  b.query = allocate_lines(&space, QUERY_BLOCK * b.query_stride);
  b.output = allocate_lines(&space, QUERY_BLOCK * b.stride);
  b.scores = allocate_lines(&space, QUERY_BLOCK * SCORE_STRIDE);
  for (size_t i = 0; i < batch; i++, q += q_size, o += q_size) {
    if (slot[i] < 0) {
      memset(o, 0, q_size * sizeof *o);
      continue;
    }
    const size_t first = (size_t)-starts[i * d.sequence],
                 cache = (size_t)slot[i] * d.positions * k_row, rows = d.sequence * k_row;
    stored *slot_keys = (stored *)call->operand[6] + cache,
           *slot_values = (stored *)call->operand[7] + cache;
    memcpy(slot_keys + first * k_row, k + i * rows, rows * sizeof *k);
    memcpy(slot_values + first * k_row, v + i * rows, rows * sizeof *v);
    attend_cached(&b, &d, keys, values, slot_keys, slot_values, q, o, first);
  }
}
