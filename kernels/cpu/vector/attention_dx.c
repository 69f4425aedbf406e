/* attention_dx.c: ATTENTION_DX, ATTENTION_QKV_DX and ATTENTION_FULL_DX: the gradient of ATTENTION,
 * with probabilities recomputed by blocks from lse (Dao et al. 2022).
 *
 * With s = q k^T/sqrt(head_dim), p = e^(s - lse) and delta = sum of do o over a row:
 *     dv += p^T do,   ds = p (do v^T - delta)/sqrt(head_dim),   dq = ds k,   dk += ds^T q.
 * A cap makes s = cap t, t = tanh(q k^T/(sqrt(head_dim) cap)), and multiplies ds by 1 - t^2.
 * Loops: sequence, key-value head, query head of its group, block of QUERY_BLOCK queries, block of
 * KEY_BLOCK keys. dq of a block of queries is complete after its last key, dk and dv after the last
 * query of the group; they are written then, so that they may be q, k and v, which were copied
 * before. As in attention.c, exponentials have base 2.
 *
 * With pairs of bf16 (tile.h) p and ds are computed tile by tile in registers and rounded to bf16
 * for their products, as in kernels/cuda/attention_dx_bf16.cu. p^T and ds^T take pairs of queries,
 * ds pairs of keys.
 *
 *   workspace, of each thread
 *     keys, values            [padded/PANEL][steps of head_dim][PANEL]   transposed
 *     key_steps               [steps of padded][stride]                  for dq = ds k
 *     dk, dv                  [padded][stride]
 *     query, dout             [QUERY_BLOCK][stride of steps]   f32: query times the factor
 *     query_steps, dout_steps [steps of QUERY_BLOCK][stride]   f32: the same as query, dout
 *     dq                      [QUERY_BLOCK][stride]
 *     chance, slope           [steps of QUERY_BLOCK][KEY_BLOCK + LINE]   p and ds
 *     slope_rows              [QUERY_BLOCK][steps of KEY_BLOCK + LINE]   f32: same as slope
 *
 * The factor is log2(e)/sqrt(head_dim).
 */
#include <math.h>

#include "kernels/cpu/threads.h"
#include "kernels/cpu/vector/functions.h"
#include "kernels/cpu/vector/isa.h"
#include "kernels/cpu/vector/step_functions.h"
#include "kernels/cpu/vector/tile.h"
#include "kernels/cpu/vector/visible_keys.h"

enum {
  QUERY_BLOCK = NUMBERS == 1 ? 48 : 64,
  KEY_BLOCK = 96,
  CHANCE_STRIDE = KEY_BLOCK + LINE,
  SLOPE_STRIDE = NUMBERS == 1 ? CHANCE_STRIDE : KEY_BLOCK / NUMBERS,
  NEXT = 4, /* operands of a block of queries: q, do, o of the next block, dq of this one */
};
_Static_assert(QUERY_BLOCK % ROWS == 0 && KEY_BLOCK % PANEL == 0 && KEY_BLOCK % ROWS == 0,
               "blocks are whole tiles");

struct attention_dx_block {
  element *key_panels, *values, *key_steps, *query, *dout, *query_steps, *dout_steps, *chance,
      *slope, *slope_rows;
  float *dk, *dv, *dq;
  struct visible_keys see;
  float lse[QUERY_BLOCK], delta[QUERY_BLOCK];
  float scale, dk_scale;
  float factor; /* with pairs: the factor of scores, log2(e)/sqrt(head_dim) */
  float cap;    /* of scores times log2(e); 0: none */
  size_t sequence, padded, head_dim, stride, query_stride;
  size_t query_count;
  struct ahead next[NEXT];
};

/* How many keys of the block that starts at `first` are not after those that the row's query sees.
 */
static size_t visible(const struct attention_dx_block *b, size_t row, size_t first) {
  return keys_before(past_key(&b->see, row), first, KEY_BLOCK);
}

/* How many keys of the block that starts at `first` are before those that the row's query sees. */
static size_t hidden(const struct attention_dx_block *b, size_t row, size_t first) {
  return keys_before(first_key_of(&b->see, row), first, KEY_BLOCK);
}

#ifdef TILE_PAIRS
_Static_assert(VECTORS == 1 && PANEL % ROWS == 0 && ROWS % NUMBERS == 0,
               "a tile of keys by queries reads tiles that make_tile() has made");

typedef uint16_t halves __attribute__((vector_size(PEN_VECTOR_BYTES)));

/* Two vectors rounded to bf16, one after the other; paired(): interleaved. */
inline_always halves rounded(vf first, vf second) {
#ifdef PEN_PAIRS
  return (halves)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first);
#else
  const vh half[2] = {narrowed(first), narrowed(second)};
  halves v;
  memcpy(&v, half, sizeof v);
  return v;
#endif
}

inline_always vu paired(halves v) {
  return (vu)__builtin_shufflevector(v, v, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23,
                                     8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}

/* Which of PANEL keys from j on the query sees; the row may be after the last query. */
inline_always vi seen_keys(const struct attention_dx_block *b, size_t row, size_t first_key,
                           size_t j) {
  const vi key = lane_numbers() + (int32_t)j;
  const int there = row < b->query_count;
  const int32_t from = there ? (int32_t)hidden(b, row, first_key) : 0;
  const int32_t count = there ? (int32_t)visible(b, row, first_key) : 0;
  const vi seen = (key >= from) & (key < count);
  return b->see.mask ? seen & shown_keys(&b->see, first_key + j, b->see.keys) : seen;
}

/* s becomes the capped scores less lse, `slope` the derivative of the cap, by rows. */
TILE_FUNCTION void cap_tile(const struct attention_dx_block *b, size_t r, vf s[ROWS][VECTORS],
                            vf slope[ROWS]) {
  const float unit = b->factor / b->cap;
  for (size_t i = 0; i < ROWS; i++) {
    const vf t = step_tanh(s[i][0] * unit);
    slope[i] = 1.0f - t * t;
    s[i][0] = t * b->cap - b->lse[r + i];
  }
}

/* p and ds of a tile, of queries from row r on and keys from j on, in registers. Unless `whole`,
 * they become 0 where a query does not see a key. Compiled apart with a cap, which takes the
 * address of p and so keeps it in memory (a tenth of the time of ATTENTION_DX in bf16). */
inline_always void make_tile_of(const struct attention_dx_block *b, size_t r, size_t first_key,
                                size_t j, int whole, int capped) {
  const size_t steps = steps_of(b->head_dim), panel = (first_key + j) * steps;
  vf p[ROWS][VECTORS] = {0}, ds[ROWS][VECTORS] = {0}, slope[ROWS];
  multiply_steps(p, ROWS, steps, b->query + r * b->query_stride, b->query_stride, 1,
                 b->key_panels + panel, PANEL);
  if (capped) {
    cap_tile(b, r, p, slope);
    for (size_t i = 0; i < ROWS; i++) p[i][0] = power_of_two_roughly(p[i][0]);
  } else {
    UNROLL
    for (size_t i = 0; i < ROWS; i++)
      p[i][0] = power_of_two_roughly(madd(p[i][0], splat(b->factor), splat(-b->lse[r + i])));
  }
  multiply_steps(ds, ROWS, steps, b->dout + r * b->query_stride, b->query_stride, 1,
                 b->values + panel, PANEL);
  UNROLL
  for (size_t i = 0; i < ROWS; i++) ds[i][0] = (ds[i][0] - b->delta[r + i]) * p[i][0];
  if (capped)
    for (size_t i = 0; i < ROWS; i++) ds[i][0] *= slope[i];
  if (!whole) UNROLL
  for (size_t i = 0; i < ROWS; i++) {
    const vi seen = seen_keys(b, r + i, first_key, j);
    p[i][0] = choose(seen, p[i][0], splat(0.0f)), ds[i][0] = choose(seen, ds[i][0], splat(0.0f));
  }
  UNROLL
  for (size_t i = 0; i < ROWS; i += NUMBERS) {
    const size_t at = (r + i) / NUMBERS * CHANCE_STRIDE + j;
    element *rows = b->slope_rows + (r + i) * SLOPE_STRIDE + j / NUMBERS;
    const halves slopes = rounded(ds[i][0], ds[i + 1][0]);
    store(b->chance + at, paired(rounded(p[i][0], p[i + 1][0])));
    store(b->slope + at, paired(slopes));
    memcpy(rows, &slopes, sizeof slopes / 2);
    memcpy(rows + SLOPE_STRIDE, (const char *)&slopes + sizeof slopes / 2, sizeof slopes / 2);
  }
}

TILE_FUNCTION void make_tile(const struct attention_dx_block *b, size_t r, size_t first_key,
                             size_t j, int whole) {
  make_tile_of(b, r, first_key, j, whole, 0);
}

TILE_FUNCTION void make_capped_tile(const struct attention_dx_block *b, size_t r, size_t first_key,
                                    size_t j, int whole) {
  make_tile_of(b, r, first_key, j, whole, 1);
}

/* p and ds of the tiles that reach below the diagonal and into the queries' documents */
static void make_chances(const struct attention_dx_block *b, size_t first_key) {
  const size_t end = visible(b, b->query_count - 1, first_key);
  for (size_t j = 0; j < end; j += PANEL)
    for (size_t r = 0; r < b->query_count; r += ROWS) {
      if (b->see.first_query + r + ROWS + b->see.later <= first_key + j ||
          hidden(b, r, first_key) >= j + PANEL)
        continue;
      const int whole = !b->see.mask && r + ROWS <= b->query_count &&
                        visible(b, r, first_key) >= j + PANEL &&
                        hidden(b, r + ROWS - 1, first_key) <= j;
      (b->cap > 0 ? make_capped_tile : make_tile)(b, r, first_key, j, whole);
    }
}
#else
/* chance = q k^T (scaled) - lse, slope = do v^T - delta, for the tiles that reach below the
 * diagonal and into the queries' documents */
static void compute_scores(const struct attention_dx_block *b, size_t first_key) {
  static const float no_offset[QUERY_BLOCK];
  const float *lse = b->cap > 0 ? no_offset : b->lse; /* cap_row() subtracts it */
  const size_t end = visible(b, b->query_count - 1, first_key);
  for (size_t j = 0; j < end; j += PANEL)
    for (size_t r = 0; r < b->query_count; r += ROWS) {
      if (b->see.first_query + r + ROWS + b->see.later <= first_key + j ||
          hidden(b, r, first_key) >= j + PANEL)
        continue;
      const size_t at = r * CHANCE_STRIDE + j, panel = (first_key + j) * b->head_dim;
      product(b->chance + at, CHANCE_STRIDE, b->head_dim, b->query + r * b->stride, b->stride,
              b->key_panels + panel, lse + r);
      product(b->slope + at, CHANCE_STRIDE, b->head_dim, b->dout + r * b->stride, b->stride,
              b->values + panel, b->delta + r);
    }
}

/* chance becomes the capped scores less lse, slope is multiplied by the derivative of the cap. */
TILE_FUNCTION void cap_row(const struct attention_dx_block *b, size_t row, size_t begin,
                           size_t count) {
  float *chance = b->chance + row * CHANCE_STRIDE, *slope = b->slope + row * CHANCE_STRIDE;
  const float unit = 1.0f / b->cap;
  for (size_t j = begin; j < count; j += LANES) {
    const vf t = step_tanh(load(chance + j) * unit);
    store(chance + j, t * b->cap - b->lse[row]);
    store(slope + j, load(slope + j) * (1.0f - t * t));
  }
}

/* Clears p and ds of hidden keys. */
TILE_FUNCTION void hide_row(const struct attention_dx_block *b, float *p, float *ds,
                            size_t first_key, size_t begin, size_t count) {
  for (size_t j = begin; j < count; j += LANES) {
    const vi shown = shown_keys(&b->see, first_key + j, first_key + count);
    store(p + j, choose(shown, load(p + j), splat(0.0f)));
    store(ds + j, choose(shown, load(ds + j), splat(0.0f)));
  }
}

/* `many` vectors: chance becomes p, slope becomes ds. */
inline_always void exponentiate_vectors(float *p, float *ds, size_t many) {
  vf x[POWERS];
  UNROLL
  for (size_t i = 0; i < many; i++) x[i] = load(p + i * LANES);
  powers_of_two(x, many);
  UNROLL
  for (size_t i = 0; i < many; i++) {
    store(p + i * LANES, x[i]);
    store(ds + i * LANES, x[i] * load(ds + i * LANES));
  }
}

/* One row of both, without the factor that is applied to dq and dk at the end. They become 0 before
 * `from`, and after `count` as far as a tile reaches. */
static void exponentiate_row(const struct attention_dx_block *b, size_t row, size_t first_key,
                             size_t from, size_t count) {
  float *p = b->chance + row * CHANCE_STRIDE, *ds = b->slope + row * CHANCE_STRIDE;
  const size_t end = least(count + ROWS - 1, KEY_BLOCK);
  size_t j = from / LANES * LANES;
  const size_t begin = j;
  if (b->cap > 0) cap_row(b, row, begin, count);
  for (; j + (POWERS - 1) * LANES < count; j += POWERS * LANES)
    exponentiate_vectors(p + j, ds + j, POWERS);
  for (; j < count; j += LANES) exponentiate_vectors(p + j, ds + j, 1);
  if (b->see.mask) hide_row(b, p, ds, first_key, begin, count);
  mask(p, 0, from, count, end, 0.0f);
  mask(ds, 0, from, count, end, 0.0f);
}

static void make_chances(const struct attention_dx_block *b, size_t first_key) {
  compute_scores(b, first_key);
  for (size_t r = 0; r < b->query_count; r++)
    exponentiate_row(b, r, first_key, hidden(b, r, first_key), visible(b, r, first_key));
}
#endif

/* dq += ds k, by query tiles, from the first key that a query of the tile sees to the last. */
static void add_dq(const struct attention_dx_block *b, size_t first_key) {
  for (size_t c = 0; c < b->head_dim; c += PANEL)
    for (size_t r = 0; r < b->query_count; r += ROWS) {
      const size_t end = visible(b, least(r + ROWS, b->query_count) - 1, first_key);
      const size_t begin = hidden(b, r, first_key) / NUMBERS;
      if (begin * NUMBERS < end)
        product_add(b->dq + r * b->stride + c, b->stride, steps_of(end) - begin,
                    b->slope_rows + r * SLOPE_STRIDE + begin, SLOPE_STRIDE,
                    b->key_steps + (first_key / NUMBERS + begin) * b->stride + c, b->stride);
    }
}

/* dv += p^T do, dk += ds^T q, by key tiles, from the first query that sees a key of the tile to the
 * last. */
static void add_dk_dv(const struct attention_dx_block *b, size_t first_key) {
  const size_t end = visible(b, b->query_count - 1, first_key);
  for (size_t c = 0; c < b->head_dim; c += PANEL)
    for (size_t j = 0; j < end; j += ROWS) {
      if (first_key + KEY_BLOCK >= past_key(&b->see, 0))
        for (size_t i = 0; i < NEXT; i++) prefetch_ahead(&b->next[i], (c / PANEL * end + j) / ROWS);
      const size_t key = first_key + j, to = key * b->stride + c;
      const size_t first = b->see.first_query + b->see.later, skip = key > first ? key - first : 0;
      size_t past = b->query_count;
      while (past > skip && first_key_of(&b->see, past - 1) >= key + ROWS) past--;
      const size_t step = skip / NUMBERS, from = step * CHANCE_STRIDE + j,
                   row = step * b->stride + c, steps = steps_of(past) - step;
      product_add_transposed(b->dv + to, b->stride, steps, b->chance + from, CHANCE_STRIDE,
                             b->dout_steps + row, b->stride);
      product_add_transposed(b->dk + to, b->stride, steps, b->slope + from, CHANCE_STRIDE,
                             b->query_steps + row, b->stride);
    }
}

static void differentiate_key_block(const struct attention_dx_block *b, size_t first_key) {
  make_chances(b, first_key);
  add_dq(b, first_key);
  add_dk_dv(b, first_key);
}

/* Copies a block of queries and their do; delta = sum of do o. */
static void load_queries(struct attention_dx_block *b, const stored *q, size_t q_row,
                         const stored *dout, const stored *o, const float *lse, size_t row) {
  copy_rows(b->query, q, q_row, b->query_count, QUERY_BLOCK, b->head_dim,
            (float)(M_LOG2E / sqrt((double)b->head_dim)));
  copy_rows(b->dout, dout, row, b->query_count, QUERY_BLOCK, b->head_dim, 1.0f);
  if (NUMBERS > 1) {
    copy_steps(b->query_steps, q, q_row, b->query_count, QUERY_BLOCK, b->head_dim);
    copy_steps(b->dout_steps, dout, row, b->query_count, QUERY_BLOCK, b->head_dim);
  }
  memset(b->dq, 0, QUERY_BLOCK * b->stride * sizeof(float));
  for (size_t r = 0; r < b->query_count; r++) {
    b->lse[r] = (float)(M_LOG2E * (double)lse[r]);
    vf sum = {0};
    for (size_t i = 0; i < b->head_dim; i += LANES)
      sum = madd(load_n(dout + r * row + i, b->head_dim - i),
                 load_n(o + r * row + i, b->head_dim - i), sum);
    b->delta[r] = lanes_sum(sum);
  }
}

/* Writes a copy back: to[r to_row ..] = from[r stride ..] times factor. */
static void write_rows(stored *to, size_t to_row, const float *from, size_t rows, size_t width,
                       float factor) {
  for (size_t r = 0; r < rows; r++)
    for (size_t i = 0; i < width; i += LANES)
      store_n(to + r * to_row + i, load(from + r * copy_stride(width) + i) * factor, width - i);
}

/* Copies a key-value head and clears its sums. */
static void load_head(const struct attention_dx_block *b, const stored *k, const stored *v,
                      size_t row) {
  copy_panels(b->key_panels, k, row, b->see.keys, b->padded, b->head_dim);
  copy_panels(b->values, v, row, b->see.keys, b->padded, b->head_dim);
  copy_steps(b->key_steps, k, row, b->see.keys, b->see.keys, b->head_dim);
  memset(b->dk, 0, b->padded * b->stride * sizeof(float));
  memset(b->dv, 0, b->padded * b->stride * sizeof(float));
}

/* The operands, and the elements between positions of q and dq, and of k, v, dk and dv. */
struct attention_dx_call {
  const struct pen_call *call;
  const stored *dout, *q, *k, *v, *o;
  const float *lse;
  struct visible_keys see; /* starts and mask of all sequences */
  stored *dq, *dk, *dv;
  size_t q_row, k_row;
};

/* Takes the buffers of one thread from the workspace. */
static struct attention_dx_block divide_workspace(const struct attention_dx_call *p,
                                                  float **space) {
  const size_t head_dim = (size_t)p->call->dim[4];
  struct attention_dx_block b = {.sequence = (size_t)p->call->dim[1],
                                 .see = p->see,
                                 .head_dim = head_dim,
                                 .stride = copy_stride(head_dim),
                                 .query_stride = copy_stride(steps_of(head_dim)),
                                 .padded = round_up(p->see.keys, KEY_BLOCK),
                                 .scale = (float)(1 / sqrt((double)head_dim))};
  b.factor = (float)(M_LOG2E / sqrt((double)head_dim));
  b.dk_scale =
      NUMBERS == 1 ? (float)M_LN2 : b.scale; /* with f32, the copied query has the other factors */
  b.cap = (float)(p->call->real[0] * M_LOG2E);
  b.key_panels = allocate_lines(space, b.padded * steps_of(head_dim)),
  b.values = allocate_lines(space, b.padded * steps_of(head_dim));
  b.key_steps = allocate_lines(space, steps_of(b.padded) * b.stride);
  b.dk = allocate_lines(space, b.padded * b.stride),
  b.dv = allocate_lines(space, b.padded * b.stride);
  b.query = allocate_lines(space, QUERY_BLOCK * b.query_stride),
  b.dout = allocate_lines(space, QUERY_BLOCK * b.query_stride);
  b.dq = allocate_lines(space, QUERY_BLOCK * b.stride);
  b.chance = allocate_lines(space, steps_of(QUERY_BLOCK) * CHANCE_STRIDE),
  b.slope = allocate_lines(space, steps_of(QUERY_BLOCK) * CHANCE_STRIDE);
  b.query_steps = NUMBERS == 1 ? b.query : allocate_lines(space, steps_of(QUERY_BLOCK) * b.stride);
  b.dout_steps = NUMBERS == 1 ? b.dout : allocate_lines(space, steps_of(QUERY_BLOCK) * b.stride);
  b.slope_rows = NUMBERS == 1 ? b.slope : allocate_lines(space, QUERY_BLOCK * SLOPE_STRIDE);
  return b;
}

/* The queries of one head, whose key-value head is loaded; `i` counts heads over sequences. */
static void differentiate_head(struct attention_dx_block *b, const struct attention_dx_call *p,
                               size_t i) {
  const size_t heads = (size_t)p->call->dim[2], o_row = heads * b->head_dim,
               row = i / heads * b->sequence, head = i % heads;
  b->see.starts = p->see.starts ? p->see.starts + row : NULL;
  b->see.mask = p->see.mask ? p->see.mask + i / heads * b->see.keys : NULL;
  for (b->see.first_query = 0; b->see.first_query < b->sequence;
       b->see.first_query += QUERY_BLOCK) {
    const size_t q_at = (row + b->see.first_query) * p->q_row + head * b->head_dim,
                 o_at = (row + b->see.first_query) * o_row + head * b->head_dim;
    b->query_count = least(QUERY_BLOCK, b->sequence - b->see.first_query);
    load_queries(b, p->q + q_at, p->q_row, p->dout + o_at, p->o + o_at,
                 p->lse + i * b->sequence + b->see.first_query, o_row);
    const struct next_block of_q = block_after(QUERY_BLOCK, q_at, p->q_row, b->see.first_query,
                                               b->sequence, head, heads, b->head_dim),
                            of_o = block_after(QUERY_BLOCK, o_at, o_row, b->see.first_query,
                                               b->sequence, head, heads, b->head_dim);
    const struct ahead next[NEXT] = {{p->q + of_q.at, p->q_row, of_q.rows, b->head_dim},
                                     {p->dout + of_o.at, o_row, of_o.rows, b->head_dim},
                                     {p->o + of_o.at, o_row, of_o.rows, b->head_dim},
                                     {p->dq + q_at, p->q_row, b->query_count, b->head_dim}};
    memcpy(b->next, next, sizeof next);
    for (size_t key = first_key_of(&b->see, 0) / KEY_BLOCK * KEY_BLOCK;
         key < past_key(&b->see, b->query_count - 1); key += KEY_BLOCK)
      differentiate_key_block(b, key);
    write_rows(p->dq + q_at, p->q_row, b->dq, b->query_count, b->head_dim, b->scale);
  }
}

/* A tile is a key-value head of a sequence, with the heads of its group. */
static void differentiate_tiles(const void *context, size_t thread, size_t first, size_t past) {
  const struct attention_dx_call *p = context;
  const struct pen_call *call = p->call;
  const size_t kv_heads = (size_t)call->dim[3], group = (size_t)call->dim[2] / kv_heads;
  float *space = call->workspace;
  for (; thread > 0; thread--) divide_workspace(p, &space);
  struct attention_dx_block b = divide_workspace(p, &space);
  for (size_t tile = first; tile < past; tile++) {
    const size_t at = tile / kv_heads * b.see.keys * p->k_row + tile % kv_heads * b.head_dim;
    load_head(&b, p->k + at, p->v + at, p->k_row);
    for (size_t i = tile * group; i < (tile + 1) * group; i++) differentiate_head(&b, p, i);
    write_rows(p->dk + at, p->k_row, b.dk, b.see.keys, b.head_dim, b.dk_scale);
    write_rows(p->dv + at, p->k_row, b.dv, b.see.keys, b.head_dim, 1.0f);
  }
}

static void differentiate(const struct attention_dx_call *p) {
  pen_parallel_for((size_t)p->call->dim[0] * (size_t)p->call->dim[3], differentiate_tiles, p);
}

/* ATTENTION_DX and ATTENTION_FULL_DX, whose operand 6 is starts or mask. */
static void differentiate_operands(const struct pen_call *call, struct visible_keys see) {
  differentiate(&(struct attention_dx_call){.call = call,
                                            .dout = call->operand[0],
                                            .q = call->operand[1],
                                            .k = call->operand[2],
                                            .v = call->operand[3],
                                            .o = call->operand[4],
                                            .lse = call->operand[5],
                                            .see = see,
                                            .dq = call->operand[7],
                                            .dk = call->operand[8],
                                            .dv = call->operand[9],
                                            .q_row = (size_t)(call->dim[2] * call->dim[4]),
                                            .k_row = (size_t)(call->dim[3] * call->dim[4])});
}

void PEN_NAME(attention_dx)(const struct pen_call *call) {
  differentiate_operands(call, causal_keys(call, call->operand[6]));
}

void PEN_NAME(attention_full_dx)(const struct pen_call *call) {
  differentiate_operands(call, all_keys(call, call->operand[6]));
}

void PEN_NAME(attention_qkv_dx)(const struct pen_call *call) {
  const int64_t head_dim = call->dim[4], k_at = call->dim[2] * head_dim,
                v_at = k_at + call->dim[3] * head_dim;
  const stored *qkv = call->operand[1];
  stored *dqkv = call->operand[5];
  const size_t row = (size_t)(call->dim[6] * head_dim);
  differentiate(&(struct attention_dx_call){.call = call,
                                            .dout = call->operand[0],
                                            .q = qkv,
                                            .k = qkv + k_at,
                                            .v = qkv + v_at,
                                            .o = call->operand[2],
                                            .lse = call->operand[3],
                                            .see = causal_keys(call, call->operand[4]),
                                            .dq = dqkv,
                                            .dk = dqkv + k_at,
                                            .dv = dqkv + v_at,
                                            .q_row = row,
                                            .k_row = row});
}
