/* attention_dx.c: ATTENTION_DX: the gradient of ATTENTION, probabilities made again block by block from lse (Dao et al. 2022).
 *
 * With s = q k^T/sqrt(head_dim), p = e^(s - lse) and delta = sum of do o over a row:
 *     dv += p^T do,   ds = p (do v^T - delta)/sqrt(head_dim),   dq = ds k,   dk += ds^T q.
 * Work goes by sequence, key-value head, query head of its group, block of QUERY_BLOCK queries, block of KEY_BLOCK keys. dq of a
 * block of queries is whole after its last key, dk and dv after the group's last query; only then are they written, so that
 * they may lie on q, k and v, which have been copied before. As in attention.c, powers have the base 2.
 *
 *   workspace  keys, values             [padded/PANEL][head_dim][PANEL]  transposed, once a key-value head
 *              key_rows                 [padded][stride]                 of dq = ds k
 *              dk, dv                   [padded][stride]
 *              query, dout, dq          [QUERY_BLOCK][stride]            query times log2(e)/sqrt(head_dim)
 *              chance, slope            [QUERY_BLOCK][KEY_BLOCK + LINE]  p and ds
 */
#include <math.h>

#include "kernels/cpu/vector/functions.h"
#include "kernels/cpu/vector/isa.h"
#include "kernels/cpu/vector/tile.h"

enum {
  QUERY_BLOCK = 48,
  KEY_BLOCK = 96,
  CHANCE_STRIDE = KEY_BLOCK + LINE,
  NEXT = 4, /* operands of a block of queries: q, do, o of the one that follows, dq of this one */
};
_Static_assert(QUERY_BLOCK % ROWS == 0 && KEY_BLOCK % PANEL == 0 && KEY_BLOCK % ROWS == 0, "blocks are whole tiles");

struct block {
  float *keys, *values, *key_rows, *dk, *dv;
  float *query, *dout, *dq, *chance, *slope;
  const int32_t *starts; /* of the sequence's tokens; null: one document */
  float lse[QUERY_BLOCK], delta[QUERY_BLOCK];
  float scale;
  size_t sequence, padded, head_dim, stride;
  size_t first_query, query_count;
  struct ahead next[NEXT];
};

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

static size_t visible(size_t query, size_t first) {
  return query < first ? 0 : least(query - first + 1, KEY_BLOCK);
}

/* Where the document of a row's query starts, which rises from row to row. */
static size_t start_of(const struct block *b, size_t row) {
  return b->starts ? (size_t)b->starts[b->first_query + row] : 0;
}

/* How many keys at the head of the block that starts at `first` stand before the row's document. */
static size_t hidden(const struct block *b, size_t row, size_t first) {
  const size_t start = start_of(b, row);
  return start < first ? 0 : least(start - first, KEY_BLOCK);
}

/* chance = q k^T (scaled) less lse, slope = do v^T less delta, for the tiles that reach below the diagonal and into the queries' documents */
static void score(const struct block *b, size_t first_key) {
  const size_t end = visible(b->first_query + b->query_count - 1, first_key);
  for (size_t j = 0; j < end; j += PANEL)
    for (size_t r = 0; r < b->query_count; r += ROWS) {
      if (b->first_query + r + ROWS <= first_key + j || hidden(b, r, first_key) >= j + PANEL)
        continue;
      const size_t at = r * CHANCE_STRIDE + j, panel = (first_key + j) * b->head_dim;
      product(b->chance + at, CHANCE_STRIDE, b->head_dim, b->query + r * b->stride, b->stride, b->keys + panel, b->lse + r);
      product(b->slope + at, CHANCE_STRIDE, b->head_dim, b->dout + r * b->stride, b->stride, b->values + panel, b->delta + r);
    }
}

/* `many` vectors: chance becomes p, slope becomes ds. */
inline_always void soften_vectors(float *p, float *ds, size_t many) {
  vf x[POWERS];
  UNROLL
  for (size_t i = 0; i < many; i++)
    x[i] = load(p + i * LANES);
  powers_of_two(x, many);
  UNROLL
  for (size_t i = 0; i < many; i++) {
    store(p + i * LANES, x[i]);
    store(ds + i * LANES, x[i] * load(ds + i * LANES));
  }
}

/* One row of both, without the factor that dq and dk get at the end. Before `from`, and past `count` as far as a tile may reach, they
 * become 0. */
static void soften(const struct block *b, size_t row, size_t from, size_t count) {
  float *p = b->chance + row * CHANCE_STRIDE, *ds = b->slope + row * CHANCE_STRIDE;
  const size_t end = least(count + ROWS - 1, KEY_BLOCK);
  size_t j = from / LANES * LANES;
  for (; j + (POWERS - 1) * LANES < count; j += POWERS * LANES)
    soften_vectors(p + j, ds + j, POWERS);
  for (; j < count; j += LANES)
    soften_vectors(p + j, ds + j, 1);
  mask(p, 0, from, count, end, 0.0f);
  mask(ds, 0, from, count, end, 0.0f);
}

/* dq += ds k, by query tiles; a tile starts at the first key that one of its queries sees, and stops at the last. */
static void add_dq(const struct block *b, size_t first_key) {
  for (size_t c = 0; c < b->head_dim; c += PANEL)
    for (size_t r = 0; r < b->query_count; r += ROWS) {
      const size_t end = visible(b->first_query + least(r + ROWS, b->query_count) - 1, first_key);
      const size_t begin = hidden(b, r, first_key);
      if (begin < end)
        product_add(b->dq + r * b->stride + c, b->stride, end - begin, b->slope + r * CHANCE_STRIDE + begin, CHANCE_STRIDE,
                    b->key_rows + (first_key + begin) * b->stride + c, b->stride);
    }
}

/* dv += p^T do, dk += ds^T q, by key tiles; a tile starts at the first query that sees one of its keys, and stops at
 * the last. */
static void add_dk_dv(const struct block *b, size_t first_key) {
  const size_t end = visible(b->first_query + b->query_count - 1, first_key);
  for (size_t c = 0; c < b->head_dim; c += PANEL)
    for (size_t j = 0; j < end; j += ROWS) {
      if (first_key + KEY_BLOCK > b->first_query)
        for (size_t i = 0; i < NEXT; i++)
          ask_ahead(&b->next[i], (c / PANEL * end + j) / ROWS);
      const size_t key = first_key + j, to = key * b->stride + c;
      const size_t skip = key > b->first_query ? key - b->first_query : 0;
      size_t past = b->query_count;
      while (past > skip && start_of(b, past - 1) >= key + ROWS)
        past--;
      const size_t from = skip * CHANCE_STRIDE + j, row = skip * b->stride + c, steps = past - skip;
      product_add_transposed(b->dv + to, b->stride, steps, b->chance + from, CHANCE_STRIDE, b->dout + row, b->stride);
      product_add_transposed(b->dk + to, b->stride, steps, b->slope + from, CHANCE_STRIDE, b->query + row, b->stride);
    }
}

static void work(const struct block *b, size_t first_key) {
  score(b, first_key);
  for (size_t r = 0; r < b->query_count; r++) {
    const size_t count = visible(b->first_query + r, first_key);
    soften(b, r, hidden(b, r, first_key), count);
  }
  add_dq(b, first_key);
  add_dk_dv(b, first_key);
}

/* Copies a block of queries in, with their do; delta = sum of do o. */
static void begin(struct block *b, const stored *q, const stored *dout, const stored *o, const float *lse, size_t row) {
  copy_rows(b->query, q, row, b->query_count, QUERY_BLOCK, b->head_dim, (float)(M_LOG2E / sqrt((double)b->head_dim)));
  copy_rows(b->dout, dout, row, b->query_count, QUERY_BLOCK, b->head_dim, 1.0f);
  memset(b->dq, 0, QUERY_BLOCK * b->stride * sizeof(float));
  for (size_t r = 0; r < b->query_count; r++) {
    b->lse[r] = (float)(M_LOG2E * (double)lse[r]);
    vf sum = {0};
    for (size_t i = 0; i < b->head_dim; i += LANES)
      sum = madd(load(b->dout + r * b->stride + i), load_n(o + r * row + i, b->head_dim - i), sum);
    b->delta[r] = lanes_sum(sum);
  }
}

/* The way back from copies: to[r to_row ..] = from[r stride ..] times factor. */
static void write_rows(stored *to, size_t to_row, const float *from, size_t rows, size_t width, float factor) {
  for (size_t r = 0; r < rows; r++)
    for (size_t i = 0; i < width; i += LANES)
      store_n(to + r * to_row + i, load(from + r * copy_stride(width) + i) * factor, width - i);
}

/* Copies one key-value head in and clears its sums. */
static void begin_head(const struct block *b, const stored *k, const stored *v, size_t row) {
  copy_panels(b->keys, k, row, b->sequence, b->padded, b->head_dim);
  copy_panels(b->values, v, row, b->sequence, b->padded, b->head_dim);
  copy_rows(b->key_rows, k, row, b->sequence, b->sequence, b->head_dim, 1.0f);
  memset(b->dk, 0, b->padded * b->stride * sizeof(float));
  memset(b->dv, 0, b->padded * b->stride * sizeof(float));
}

static struct block lay_out(const struct pen_call *call) {
  const size_t sequence = (size_t)call->dim[1], head_dim = (size_t)call->dim[4];
  struct block b = { .sequence = sequence, .head_dim = head_dim, .stride = copy_stride(head_dim),
                     .padded = round_up(sequence, KEY_BLOCK), .scale = (float)(1 / sqrt((double)head_dim)) };
  float *space = call->workspace;
  b.keys = take(&space, b.padded * head_dim), b.values = take(&space, b.padded * head_dim);
  b.key_rows = take(&space, b.padded * b.stride);
  b.dk = take(&space, b.padded * b.stride), b.dv = take(&space, b.padded * b.stride);
  b.query = take(&space, QUERY_BLOCK * b.stride), b.dout = take(&space, QUERY_BLOCK * b.stride);
  b.dq = take(&space, QUERY_BLOCK * b.stride);
  b.chance = take(&space, QUERY_BLOCK * CHANCE_STRIDE), b.slope = take(&space, QUERY_BLOCK * CHANCE_STRIDE);
  return b;
}

void PEN_NAME(attention_dx)(const struct pen_call *call) {
  const size_t batch = (size_t)call->dim[0], heads = (size_t)call->dim[2], kv_heads = (size_t)call->dim[3];
  const stored *dout = call->operand[0], *q = call->operand[1], *k = call->operand[2], *v = call->operand[3], *o = call->operand[4];
  const float *lse = call->operand[5];
  const int32_t *starts = call->operand[6];
  stored *dq = call->operand[7], *dk = call->operand[8], *dv = call->operand[9];
  struct block b = lay_out(call);
  const size_t q_row = heads * b.head_dim, k_row = kv_heads * b.head_dim, group = heads / kv_heads;
  for (size_t i = 0; i < batch * heads; i++) {
    const size_t row = i / heads * b.sequence, head = i % heads;
    const size_t k_at = row * k_row + head / group * b.head_dim;
    if (head % group == 0)
      begin_head(&b, k + k_at, v + k_at, k_row);
    b.starts = starts ? starts + row : NULL;
    for (b.first_query = 0; b.first_query < b.sequence; b.first_query += QUERY_BLOCK) {
      const size_t at = (row + b.first_query) * q_row + head * b.head_dim;
      b.query_count = least(QUERY_BLOCK, b.sequence - b.first_query);
      begin(&b, q + at, dout + at, o + at, lse + i * b.sequence + b.first_query, q_row);
      const struct next_block next = block_after(QUERY_BLOCK, at, b.first_query, b.sequence, head, heads, b.head_dim);
      const stored *const soon[] = { q, dout, o };
      for (size_t k = 0; k + 1 < NEXT; k++)
        b.next[k] = (struct ahead){ soon[k] + next.at, q_row, next.rows, b.head_dim };
      b.next[NEXT - 1] = (struct ahead){ dq + at, q_row, b.query_count, b.head_dim };
      for (size_t key = start_of(&b, 0) / KEY_BLOCK * KEY_BLOCK; key < b.first_query + b.query_count; key += KEY_BLOCK)
        work(&b, key);
      write_rows(dq + at, q_row, b.dq, b.query_count, b.head_dim, b.scale);
    }
    if (head % group == group - 1) {
      write_rows(dk + k_at, k_row, b.dk, b.sequence, b.head_dim, (float)M_LN2); /* the other factors are in the copied query */
      write_rows(dv + k_at, k_row, b.dv, b.sequence, b.head_dim, 1.0f);
    }
  }
}
