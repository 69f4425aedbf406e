/* verify_memory.c: every byte of every arena over two successive steps.
 *
 * A rank's arena is cut into cells at every address where something begins or ends. Each cell has a
 * tag: the tensor, microbatch and step of what was last written there. The rank's rows run twice;
 * each row's trace says which cells it reads, which must all hold exactly what it means, and what
 * it leaves in which cells. The value that a stage hands to the next on the same rank is one value.
 *
 * A message may change the bytes of its home at any time from the earliest instant at which its
 * sender could write them (verify_arrivals.c). From that instant to its WAIT row the home is in
 * flight: its tag is nobody's to read, and nobody may write there.
 *
 * The two rows of a pair a|b may run at the same time: besides being right in turn, their bytes
 * must be apart.
 *
 * Besides, for the rendezvous models: which rows overwrite what an earlier send of the step reads.
 */
#include <string.h>

#include "gen/verify/internal.h"
#include "gen/base/arena.h"
#include "gen/base/sort.h"
#include "runtime/plan/plan.h"

/* ---- cells ---- */

/* Addresses, each with a number, and in the end their order. */
struct edges {
  uint64_t *address; /* [number] */
  uint32_t *cell;    /* [number]: its place among all, by address */
  uint32_t *slot;    /* hash table: number + 1; 0: free */
  size_t slots, count, capacity;
  uint32_t last; /* what was found last: extents lie side by side */
};

/* The slot of an address, or the free one that it would get. */
static size_t edge_slot(const struct edges *e, uint64_t address) {
  uint64_t hash = address * 0x9e3779b97f4a7c15u;
  size_t slot = (size_t)(hash >> 20) & (e->slots - 1);
  while (e->slot[slot] && e->address[e->slot[slot] - 1] != address)
    slot = (slot + 1) & (e->slots - 1);
  return slot;
}

static void edges_grow(struct edges *e) {
  pen_free(e->slot);
  e->slots = e->slots ? 4 * e->slots : 1024;
  e->slot = pen_new(e->slots, sizeof *e->slot);
  for (uint32_t number = 0; number < e->count; number++)
    e->slot[edge_slot(e, e->address[number])] = number + 1;
}

static uint32_t edge_insert(struct edges *e, uint64_t address) {
  if (2 * (e->count + 1) > e->slots) edges_grow(e);
  e->address = pen_grow(e->address, &e->capacity, e->count + 1, sizeof *e->address);
  e->address[e->count++] = address;
  e->slot[edge_slot(e, address)] = (uint32_t)e->count;
  return e->last = (uint32_t)e->count - 1;
}

/* Notes an address; returns its number. */
static inline uint32_t edge_add(struct edges *e, uint64_t address) {
  if (e->count == 0) return edge_insert(e, address);
  if (e->address[e->last] == address) return e->last;
  uint32_t number = e->slot[edge_slot(e, address)];
  return number ? (e->last = number - 1) : edge_insert(e, address);
}

/* Puts the addresses in order. */
static void edges_sort(struct edges *e) {
  struct pen_keyed *sorted = pen_new(e->count + 1, sizeof *sorted);
  for (uint32_t number = 0; number < e->count; number++)
    sorted[number] = (struct pen_keyed){e->address[number], number};
  pen_sort(sorted, e->count);
  e->cell = pen_new(e->count + 1, sizeof *e->cell);
  for (uint32_t index = 0; index < e->count; index++) e->cell[sorted[index].index] = index;
  pen_free(sorted);
}

/* Cells side by side; before they are known, the numbers of their ends. */
struct cells {
  uint32_t first, past;
};

/* What a cell holds. */
struct cell {
  uint32_t tensor; /* PEN_NONE: nothing that may be read; tensor_count: the head's gradient of a
                      tied matrix */
  uint32_t microbatch;
  uint32_t writer; /* row + 1; 0: nothing yet */
  uint32_t sent;   /* row + 1 of the last send of this step that reads it; 0: none */
  uint8_t step;
  bool flight; /* a message may come at any time */
};

/* One rank at work. */
struct memory {
  struct pen_checked *c;
  const struct pen_rank_context *b;
  struct pen_tracer *tracer;
  struct pen_trace *trace;
  uint32_t *trace_of; /* [row] */
  size_t trace_count, trace_capacity;
  struct edges edges;
  struct cell *cell;
  uint32_t *mark, mark_count; /* [cell]; a pair's writes are marked by a number of their own */
  uint32_t step, row;
  uint32_t *const *begin;             /* [step][message] */
  uint32_t *first_event, *next_event; /* [rows done over both steps], [step * own messages + n]:
                                         lists of what may come then */
  const uint32_t *message;            /* the rank's incoming messages */
  uint32_t message_count;
  struct cells *home; /* [incoming message] */
  struct cells *sent; /* [row that sends to a neighbour] what leaves */
  uint32_t *incoming; /* [message of the plan's] its place among the incoming ones; of all ranks */
  uint64_t *unsharded_at; /* [stage]: where its weights lie that are cut */
  uint8_t *added;         /* [own weight, then tie][microbatch] in this step */
  uint8_t *owes_loss;     /* [microbatch]: the last stage's forward of this step has left no loss */
  size_t hold_capacity;
};

static const char *tensor_name(const struct memory *m, uint32_t tensor) {
  return tensor == m->b->tables->tensor_count ? "the head's gradient"
                                              : m->b->tables->tensors[tensor].name;
}

#define WRONG(m, ...) pen_problem_note((m)->c->problem, (m)->b->rank, (m)->row, __VA_ARGS__)

/* Says what lies where something else was meant. */
static bool wrong_content(const struct memory *m, const char *verb, uint32_t tensor,
                          uint32_t microbatch, const struct cell *cell) {
  const char *name = tensor_name(m, tensor);
  const char *step = m->step == 0 ? "" : " (next step)";
  if (cell->writer == 0)
    return WRONG(m, "%s %s of microbatch %u%s, which nothing has written", verb, name, microbatch,
                 step);
  if (cell->flight)
    return WRONG(m,
                 "%s %s of microbatch %u%s, but the message for %s of microbatch %u%s may come "
                 "there already",
                 verb, name, microbatch, step, tensor_name(m, cell->tensor), cell->microbatch,
                 cell->step > m->step ? " of the next step" : "");
  if (cell->tensor == PEN_NONE)
    return WRONG(m, "%s %s of microbatch %u%s, which the scratch of action %u has overwritten",
                 verb, name, microbatch, step, cell->writer - 1);
  if (cell->tensor == tensor && cell->microbatch == microbatch)
    return WRONG(m, "%s %s of microbatch %u%s, but its bytes still hold that of the step before",
                 verb, name, microbatch, step);
  return WRONG(
      m, "%s %s of microbatch %u%s, but its bytes hold %s of microbatch %u, from action %u", verb,
      name, microbatch, step, tensor_name(m, cell->tensor), cell->microbatch, cell->writer - 1);
}

static bool holds(const struct memory *m, const struct cell *cell, uint32_t tensor,
                  uint32_t microbatch, bool flight) {
  return cell->writer != 0 && cell->tensor == tensor && cell->microbatch == microbatch &&
         cell->step == m->step && cell->flight == flight;
}

/* The cell that begins at an address. */
static uint32_t cell_at(const struct memory *m, uint64_t address) {
  return m->edges.cell[m->edges.slot[edge_slot(&m->edges, address)] - 1];
}

/* ---- rows ---- */

static void add_hold(struct memory *m, uint32_t send_row) {
  struct pen_hold **hold = &m->c->hold[m->b->rank];
  size_t *count = &m->c->hold_count[m->b->rank];
  for (size_t index = *count; index > 0 && (*hold)[index - 1].row == m->row; index--)
    if ((*hold)[index - 1].send_row == send_row) return;
  *hold = pen_grow(*hold, &m->hold_capacity, *count + 1, sizeof **hold);
  (*hold)[(*count)++] = (struct pen_hold){m->row, send_row};
}

/* Which microbatches a weight's gradient has had: one of the rank's weights, or what the head has
 * of a tied one. */
static uint8_t *added_of(const struct memory *m, uint32_t weight) {
  uint32_t weights = m->b->plan->weight_count;
  size_t place =
      weight < weights ? m->b->weight_place[weight] : m->b->own_weight_count + (weight - weights);
  return &m->added[place * m->c->microbatch_count];
}

/* Weight gradients: each microbatch is added once. */
static bool add_gradients(struct memory *m, const struct pen_trace *trace, uint32_t microbatch) {
  if (trace->weight_count > 0 && m->c->profile_kind != PEN_TRAIN)
    return WRONG(m, "adds to the gradient of %s, but its profile does not train",
                 pen_gradient_name(m->b->plan, m->tracer->weight[trace->weight_first]));
  for (uint32_t n = 0; n < trace->weight_count; n++) {
    uint32_t weight = m->tracer->weight[trace->weight_first + n];
    uint8_t *added = &added_of(m, weight)[microbatch];
    if (*added)
      return WRONG(m, "adds to the gradient of %s twice for microbatch %u",
                   pen_gradient_name(m->b->plan, weight), microbatch);
    *added = 1;
  }
  return true;
}

/* A microbatch's loss is left once, by the last stage: by its F or, where it trains, by what
 * follows, I or B. */
static bool check_loss(const struct memory *m, const struct pen_trace *trace,
                       const struct pen_action *row) {
  bool is_last = row->stage + 1u == m->c->stage_count, leaves = trace->loss_offset != UINT64_MAX;
  uint8_t *owes = &m->owes_loss[row->microbatch];
  uint64_t place = m->b->plan->loss_offset + (uint64_t)row->microbatch * sizeof(double);
  bool wanted = is_last && (row->kind == PEN_F || (*owes && row->kind != PEN_W));
  if (!wanted)
    return !leaves || WRONG(m,
                            "leaves a loss, but is not the last stage's forward, nor a backward "
                            "that owes it one");
  *owes = row->kind == PEN_F && !leaves && m->c->profile_kind == PEN_TRAIN;
  if (*owes) return true;
  if (!leaves) return WRONG(m, "leaves no loss");
  return trace->loss_offset == place ||
         WRONG(m, "leaves its loss at %llu, not at entry %u of the loss table (%llu)",
               (unsigned long long)trace->loss_offset, row->microbatch, (unsigned long long)place);
}

static bool run_compute(struct memory *m, const struct pen_action *row) {
  const struct pen_trace *trace = &m->trace[m->trace_of[m->row]];
  const struct pen_extent *read = m->tracer->extent + trace->read_first,
                          *left = m->tracer->extent + trace->left_first;
  for (uint32_t n = 0; n < trace->read_count; n++) {
    uint32_t tensor = m->b->same_as[read[n].tensor];
    uint32_t microbatch =
        read[n].base == PEN_BASE_UNSHARDED ? 0 : row->microbatch; /* a weight is of none */
    for (uint64_t at = read[n].first; at < read[n].past; at++)
      if (!holds(m, &m->cell[at], tensor, microbatch, false))
        return wrong_content(m, "reads", read[n].tensor, microbatch, &m->cell[at]);
  }
  struct cell made = {PEN_NONE, row->microbatch, m->row + 1, 0, (uint8_t)m->step, false};
  for (uint32_t n = 0; n < trace->left_count; n++) {
    made.tensor = left[n].tensor;
    for (uint64_t at = left[n].first; at < left[n].past; at++) {
      if (m->cell[at].sent && m->step == 0) add_hold(m, m->cell[at].sent - 1);
      m->cell[at] = made;
    }
  }
  return check_loss(m, trace, row) && add_gradients(m, trace, row->microbatch);
}

/* What a stage's weights that are cut take at a place, tensor by tensor: the cells of the n-th from
 * `*n` on; false: no more. */
static bool next_unsharded(const struct memory *m, uint32_t stage, uint64_t place, uint32_t *n,
                           uint64_t *first, uint64_t *past) {
  for (; *n < m->b->tables->tensor_count; (*n)++) {
    const struct pen_tensor *tensor = &m->b->tables->tensors[*n];
    if (tensor->base != PEN_BASE_UNSHARDED || m->b->plan->weights[m->b->weight[*n]].stage != stage)
      continue;
    *first = place + tensor->offset;
    *past = *first + tensor->bytes;
    return true;
  }
  return false;
}

/* The weights of a stage come, or go: their cells hold them, of no microbatch, or nothing that may
 * be read. */
static bool run_unshard(struct memory *m, const struct pen_action *row) {
  bool comes = row->kind == PEN_UNSHARD;
  uint64_t *place = &m->unsharded_at[row->stage], first, past;
  if (comes) *place = m->b->tables->frames[row->frame].base[PEN_BASE_UNSHARDED];
  for (uint32_t n = 0; next_unsharded(m, row->stage, *place, &n, &first, &past); n++) {
    if (comes && (first < m->b->memory->persistent_end ? past > m->b->memory->receive_bytes
                                                       : past > m->b->memory->arena_bytes))
      return WRONG(m, "brings %s to %llu, outside window and activation part", tensor_name(m, n),
                   (unsigned long long)first);
    for (uint32_t at = cell_at(m, first); at < cell_at(m, past); at++) {
      if (!comes && !holds(m, &m->cell[at], n, 0, false))
        return wrong_content(m, "gives up", n, 0, &m->cell[at]);
      if (m->cell[at].sent && m->step == 0 && comes) add_hold(m, m->cell[at].sent - 1);
      m->cell[at] = (struct cell){comes ? n : PEN_NONE, 0, m->row + 1, 0, (uint8_t)m->step, false};
    }
  }
  return true;
}

/* The first of some extents that has a cell with this mark, or null. */
static const struct pen_extent *find_marked(const struct memory *m, uint32_t mark, uint32_t first,
                                            uint32_t count) {
  for (const struct pen_extent *extent = m->tracer->extent + first; count-- > 0; extent++)
    for (uint64_t at = extent->first; at < extent->past; at++)
      if (m->mark[at] == mark) return extent;
  return NULL;
}

/* Neither of a pair a|b writes what the other reads or writes: they may run at the same time. */
static bool check_apart(struct memory *m, const struct pen_trace *writer,
                        const struct pen_trace *other) {
  const struct pen_extent *left = m->tracer->extent + writer->left_first;
  m->mark_count++;
  for (const struct pen_extent *extent = left; extent < left + writer->left_count; extent++)
    for (uint64_t at = extent->first; at < extent->past; at++) m->mark[at] = m->mark_count;
  const struct pen_extent *met =
      find_marked(m, m->mark_count, other->read_first, other->read_count);
  if (!met) met = find_marked(m, m->mark_count, other->left_first, other->left_count);
  return !met || WRONG(m, "overlaps the action after it, but one writes where the other has %s",
                       met->tensor == PEN_NONE ? "its scratch" : tensor_name(m, met->tensor));
}

/* Two rows that may run at the same time. That they add to no common gradient follows from their
 * stages (verify_rows.c). */
static bool check_pair(struct memory *m) {
  const struct pen_trace *a = &m->trace[m->trace_of[m->row]],
                         *b = &m->trace[m->trace_of[m->row + 1]];
  return check_apart(m, a, b) && check_apart(m, b, a);
}

/* A gradient has had every microbatch. */
static bool check_complete(const struct memory *m, uint32_t weight) {
  const uint8_t *added = added_of(m, weight);
  for (uint32_t microbatch = 0; microbatch < m->c->microbatch_count; microbatch++)
    if (!added[microbatch])
      return WRONG(m, "the gradient of %s lacks microbatch %u",
                   pen_gradient_name(m->b->plan, weight), microbatch);
  return true;
}

/* The head's gradient leaves whole; its bytes are the next to be cleared by UPDATE. */
static bool run_send_gradient(const struct memory *m) {
  return check_complete(m, m->b->plan->weight_count);
}

/* Both gradients of the tied matrix are whole, wherever the head's is. */
static bool run_join(const struct memory *m, const struct pen_action *row) {
  const struct pen_tie *tie = m->b->plan->ties;
  const struct pen_weight *weight = &m->b->plan->weights[tie->weight];
  if (!check_complete(m, tie->weight)) return false;
  if (tie->rank == m->b->rank) return check_complete(m, m->b->plan->weight_count);
  uint64_t home = m->b->profile->messages[row->message].target_offset;
  uint32_t past = cell_at(m, home + weight->count * sizeof(float));
  for (uint32_t at = cell_at(m, home); at < past; at++)
    if (!holds(m, &m->cell[at], m->b->tables->tensor_count, 0, false))
      return wrong_content(m, "reads", m->b->tables->tensor_count, 0, &m->cell[at]);
  return true;
}

static bool run_send(struct memory *m, const struct pen_action *row) {
  if (row->kind == PEN_SEND_G) return run_send_gradient(m);
  if (row->kind == PEN_SEND_V) return true; /* a weight: only UPDATE changes it */
  const struct pen_stage *stage = &m->b->profile->stages[row->stage];
  uint32_t tensor = row->kind == PEN_SEND_B ? stage->input_gradient : stage->output;
  for (uint32_t at = m->sent[m->row].first; at < m->sent[m->row].past; at++) {
    if (!holds(m, &m->cell[at], tensor, row->microbatch, false))
      return wrong_content(m, "sends", tensor, row->microbatch, &m->cell[at]);
    if (m->step == 0) m->cell[at].sent = m->row + 1;
  }
  return true;
}

/* The message has come: its home must have been left alone since it could. */
static bool run_wait(struct memory *m, const struct pen_action *row) {
  if (row->kind == PEN_WAIT_V) return true; /* verify_tie.c has seen to its home */
  const struct cells home = m->home[m->incoming[row->message]];
  const struct pen_stage *stage = &m->b->profile->stages[row->stage];
  uint32_t tensor = row->kind == PEN_WAIT_G   ? m->b->tables->tensor_count
                    : row->kind == PEN_WAIT_B ? stage->output_gradient
                                              : stage->input;
  for (uint32_t at = home.first; at < home.past; at++) {
    if (!holds(m, &m->cell[at], tensor, row->microbatch, true))
      return wrong_content(m, "waits for", tensor, row->microbatch, &m->cell[at]);
    m->cell[at].flight = false;
  }
  return true;
}

/* At the end of a step every trainable weight has had every microbatch. */
static bool run_update(struct memory *m) {
  const struct pen_plan *plan = m->b->plan;
  for (uint32_t n = 0; n < m->b->own_weight_count; n++)
    if (!plan->weights[m->b->own_weight[n]].frozen && !check_complete(m, m->b->own_weight[n]))
      return false;
  memset(m->added, 0, ((size_t)m->b->own_weight_count + plan->tie_count) * m->c->microbatch_count);
  bool sent = m->c->joins && plan->ties->rank == m->b->rank &&
              plan->weights[plan->ties->weight].rank != m->b->rank;
  if (sent && m->step == 0)
    add_hold(m, pen_action_index(m->c, PEN_SEND_G, m->c->stage_count - 1,
                                 0)); /* it clears what that sends */
  return true;
}

/* From here on some messages may come. */
static void run_events(struct memory *m, uint32_t rows_done) {
  for (uint32_t event = m->first_event[rows_done]; event != PEN_NONE;
       event = m->next_event[event]) {
    uint32_t step = event >= m->message_count, place = event - step * m->message_count;
    const struct pen_message *message = &m->b->profile->messages[m->message[place]];
    enum pen_direction way = pen_direction_of(message->kind);
    if (way == PEN_DIRECTION_TIED_WEIGHT) continue;
    const struct pen_stage *stage = &m->b->profile->stages[pen_reader(m->c, way, message->stage)];
    uint32_t tensor = way == PEN_DIRECTION_TIED_GRADIENT ? m->b->tables->tensor_count
                      : way == PEN_DIRECTION_BACKWARD    ? stage->output_gradient
                                                         : stage->input;
    struct cell coming = {tensor, message->microbatch, PEN_NONE, 0, (uint8_t)step, true};
    for (uint32_t at = m->home[place].first; at < m->home[place].past; at++) m->cell[at] = coming;
  }
}

static bool run_row(struct memory *m) {
  const struct pen_action *row = &m->b->tables->actions[m->row];
  if (pen_is_compute(row->kind))
    return (!row->overlaps || m->step > 0 || check_pair(m)) && run_compute(m, row);
  if (pen_is_send(row->kind)) return run_send(m, row);
  if (pen_is_wait(row->kind)) return run_wait(m, row);
  if (row->kind == PEN_ADD_TIED_GRAD) return run_join(m, row);
  if (row->kind == PEN_UNSHARD || row->kind == PEN_RESHARD) return run_unshard(m, row);
  return row->kind != PEN_UPDATE || run_update(m);
}

/* ---- one rank ---- */

/* Traces every pair of program and frame once. */
static bool trace_rows(struct memory *m) {
  uint32_t count = m->b->tables->action_count;
  size_t slots = 16;
  while (slots < 2 * (size_t)count) slots *= 2;
  uint32_t *slot_row = pen_new(slots, sizeof *slot_row); /* row + 1 */
  m->trace_of = pen_new((size_t)count + 1, sizeof *m->trace_of);
  if (!pen_trace_start(m->tracer)) return false;
  for (uint32_t row = 0; row < count; row++) {
    const struct pen_action *action = &m->b->tables->actions[row], *other;
    if (!pen_is_compute(action->kind)) continue;
    uint64_t hash = ((uint64_t)action->program << 32 | action->frame) * 0x9e3779b97f4a7c15u;
    size_t slot = (size_t)(hash >> 24) & (slots - 1);
    for (; slot_row[slot]; slot = (slot + 1) & (slots - 1)) {
      other = &m->b->tables->actions[slot_row[slot] - 1];
      if (other->program == action->program && other->frame == action->frame) break;
    }
    if (slot_row[slot]) {
      m->trace_of[row] = m->trace_of[slot_row[slot] - 1];
      continue;
    }
    slot_row[slot] = row + 1;
    m->trace = pen_grow(m->trace, &m->trace_capacity, m->trace_count + 1, sizeof *m->trace);
    m->trace_of[row] = (uint32_t)m->trace_count;
    if (!pen_trace_action(m->tracer, row, &m->trace[m->trace_count++])) return false;
  }
  pen_free(slot_row);
  return true;
}

static struct cells cut(struct memory *m, uint64_t first, uint64_t past) {
  uint32_t from = edge_add(&m->edges, first);
  return (struct cells){from, edge_add(&m->edges, past)};
}

static void cut_unsharded(struct memory *m) {
  for (uint32_t row = 0; row < m->b->tables->action_count; row++) {
    const struct pen_action *action = &m->b->tables->actions[row];
    uint64_t ends[2], place = action->kind == PEN_UNSHARD
                                  ? m->b->tables->frames[action->frame].base[PEN_BASE_UNSHARDED]
                                  : 0;
    for (uint32_t n = 0; action->kind == PEN_UNSHARD &&
                         next_unsharded(m, action->stage, place, &n, &ends[0], &ends[1]);
         n++)
      cut(m, ends[0], ends[1]);
  }
}

/* From numbers of addresses to cells. */
static void number_cells(const struct memory *m, struct cells *cells, size_t count) {
  for (size_t index = 0; index < count; index++)
    cells[index] =
        (struct cells){m->edges.cell[cells[index].first], m->edges.cell[cells[index].past]};
}

/* Cuts the arena into cells wherever something begins or ends, and turns the addresses of extents
 * and messages into cells. */
static void cut_cells(struct memory *m) {
  const struct pen_rank_program *tables = m->b->tables;
  struct pen_extent *extent = m->tracer->extent;
  m->home = pen_new((size_t)m->message_count + 1, sizeof *m->home);
  m->sent = pen_new((size_t)tables->action_count + 1, sizeof *m->sent);
  edge_add(&m->edges, 0);
  for (size_t index = 0; index < m->tracer->extent_count; index++) {
    struct cells cells = cut(m, extent[index].first, extent[index].past);
    extent[index].first = cells.first;
    extent[index].past = cells.past;
  }
  for (uint32_t n = 0; n < m->message_count; n++) {
    const struct pen_message *message = &m->b->profile->messages[m->message[n]];
    m->incoming[m->message[n]] = n;
    if (message->kind != PEN_SEND_V)
      m->home[n] = cut(m, message->target_offset, message->target_offset + message->bytes);
  }
  for (uint32_t row = 0; row < tables->action_count; row++)
    if (pen_is_send(tables->actions[row].kind) && !pen_is_of_tie(tables->actions[row].kind)) {
      const struct pen_message *message = &m->b->profile->messages[tables->actions[row].message];
      m->sent[row] = cut(m, message->source_offset, message->source_offset + message->bytes);
    }
  cut_unsharded(m);
  edges_sort(&m->edges);
  for (size_t index = 0; index < m->tracer->extent_count; index++) {
    extent[index].first = m->edges.cell[extent[index].first];
    extent[index].past = m->edges.cell[extent[index].past];
  }
  number_cells(m, m->home, m->message_count);
  number_cells(m, m->sent, tables->action_count);
  m->cell = pen_new(m->edges.count + 1, sizeof *m->cell);
  m->mark = pen_new(m->edges.count + 1, sizeof *m->mark);
}

/* Hangs each incoming message, in each step, on the row after which it may come. */
static void list_events(struct memory *m) {
  size_t moments = 2 * (size_t)m->b->tables->action_count + 1;
  m->first_event = pen_new(moments, sizeof *m->first_event);
  m->next_event = pen_new(2 * (size_t)m->message_count + 1, sizeof *m->next_event);
  for (size_t moment = 0; moment < moments; moment++) m->first_event[moment] = PEN_NONE;
  for (uint32_t event = 2 * m->message_count; event-- > 0;) {
    uint32_t step = event >= m->message_count,
             *first = &m->first_event[m->begin[step][m->message[event - step * m->message_count]]];
    m->next_event[event] = *first;
    *first = event;
  }
}

/* What one rank took. */
static void forget(struct memory *m) {
  void *const arrays[] = {
      m->trace,        m->trace_of,     m->edges.address, m->edges.slot,     m->edges.cell,
      m->home,         m->sent,         m->cell,          m->mark,           m->first_event,
      m->next_event,   m->unsharded_at, m->added,         m->tracer->moulds, m->tracer->written,
      m->tracer->read, m->owes_loss};
  for (size_t index = 0; index < sizeof arrays / sizeof *arrays; index++) pen_free(arrays[index]);
}

static bool run_rank(struct memory *m) {
  pen_tracer_start(m->tracer, m->b);
  if (!trace_rows(m)) return false;
  cut_cells(m);
  list_events(m);
  m->unsharded_at = pen_new(m->c->stage_count, sizeof *m->unsharded_at);
  m->added = pen_new(
      ((size_t)m->b->own_weight_count + m->b->plan->tie_count) * m->c->microbatch_count + 1, 1);
  m->owes_loss = pen_new((size_t)m->c->microbatch_count + 1, sizeof *m->owes_loss);
  uint32_t count = m->b->tables->action_count;
  run_events(m, 0);
  for (m->step = 0; m->step < 2; m->step++)
    for (m->row = 0; m->row < count; m->row++) {
      if (!run_row(m)) return false;
      run_events(m, m->step * count + m->row + 1);
    }
  forget(m);
  return true;
}

bool pen_check_memory(struct pen_checked *c, const struct pen_rank_context *bench) {
  const struct pen_profile *profile = bench[0].profile;
  uint32_t *begin[2] = {pen_new((size_t)profile->message_count + 1, sizeof(uint32_t)),
                        pen_new((size_t)profile->message_count + 1, sizeof(uint32_t))};
  uint32_t *message = pen_new((size_t)profile->message_count + 1, sizeof *message);
  uint32_t *incoming = pen_new((size_t)profile->message_count + 1, sizeof *incoming);
  uint32_t *first = pen_new((size_t)c->rank_count + 2, sizeof *first);
  pen_find_arrivals(c, profile, begin);
  for (uint32_t index = 0; index < profile->message_count; index++)
    first[profile->channels[profile->messages[index].channel].to_rank + 2]++;
  for (uint32_t rank = 0; rank <= c->rank_count; rank++) first[rank + 1] += first[rank];
  for (uint32_t index = 0; index < profile->message_count; index++)
    message[first[profile->channels[profile->messages[index].channel].to_rank + 1]++] = index;
  c->hold = pen_new(c->rank_count, sizeof *c->hold);
  c->hold_count = pen_new(c->rank_count, sizeof *c->hold_count);
  struct pen_tracer tracer = {0};
  for (uint32_t rank = 0; rank < c->rank_count; rank++) {
    struct memory m = {.c = c,
                       .b = &bench[rank],
                       .tracer = &tracer,
                       .begin = begin,
                       .message = message + first[rank],
                       .message_count = first[rank + 1] - first[rank],
                       .incoming = incoming};
    if (!run_rank(&m)) return false;
  }
  return true;
}
