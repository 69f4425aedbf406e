/* ofi.c: the transport between hosts of CPUs: a send is a remote write into the message's target,
 * which raises the receiver's counter; a credit is a write of no bytes.
 *
 * Every message of every profile has two counters, which rise once a step of the profile: one at
 * the receiver, for its arrival, one at the sender, for its credit. So nothing depends on the order
 * in which writes arrive. Sends continue while the rank computes: what overwrites their source
 * waits for them (wait_sent), and a receive gives the target free only after the sends that read
 * it.
 *
 * Between replicas, peers that are not near exchange shards by writes, too. Every peer has three
 * counters here: the collectives that it has ended, the groups for which it is ready to receive,
 * the shards that it has written. These and the counts below are of the run, for all profiles. */
#include "runtime/comm/ofi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/check.h"
#include "runtime/comm/fabric.h"
#include "runtime/comm/links.h"
#include "runtime/comm/ofi_counters.h"
#include "runtime/comm/shm.h"
#include "runtime/comm/transport_base.h"

struct ofi_peer {
  bool used;                                     /* it is another replica's, and not near */
  uint32_t shards_expected, shards_sent;         /* shards_sent: in this group */
  struct pen_fabric_write ended, ready, *shards; /* [shards_max] */
};

struct ofi_peers {
  struct ofi_peer *peer; /* [data ranks] */
  uint32_t groups;       /* begun */
  uint32_t shards_max;   /* of a group, to one peer */
};

struct ofi_transport {
  struct pen_transport base;
  struct pen_transport *shm;                /* for the ranks that share this rank's memory */
  struct pen_fabric *fabric;                /* of all the rank's profiles */
  uint32_t first_counter;                   /* of this profile */
  struct pen_fabric_write *sends, *credits; /* [message_count] */
  struct ofi_peers *peers;                  /* of all the rank's profiles */
  struct pen_link_delays *delays;           /* likewise */
  uint32_t ended_before; /* collectives that this rank had ended when the step began */
  bool shares_memory;    /* with the ranks of this command */
};

static struct ofi_transport *ofi_of(struct pen_transport *transport) {
  return (struct ofi_transport *)transport;
}

static bool is_near(const struct pen_transport *transport, uint32_t global) {
  return ((const struct ofi_transport *)transport)->shares_memory &&
         pen_is_local(transport->shared, global);
}

static uint32_t sender_of(const struct pen_transport *transport, uint32_t message) {
  return pen_transport_process(transport, PEN_PIPELINE,
                               pen_transport_channel(transport, message)->from_rank);
}

static uint32_t receiver_of(const struct pen_transport *transport, uint32_t message) {
  return pen_transport_process(transport, PEN_PIPELINE,
                               pen_transport_channel(transport, message)->to_rank);
}

/* ---- counters ---- */

static uint32_t arrival_counter(const struct ofi_transport *ofi, uint32_t message) {
  return ofi->first_counter + message;
}

static uint32_t credit_counter(const struct ofi_transport *ofi, uint32_t message) {
  return ofi->first_counter + ofi->base.profile->message_count + message;
}

static bool wait_counter(struct ofi_transport *ofi, uint32_t counter, uint32_t needed,
                         uint32_t peer) {
  return (int32_t)(pen_fabric_count(ofi->fabric, counter) - needed) >= 0 ||
         pen_fabric_wait(ofi->fabric, counter, needed, peer);
}

/* Messages: waits until the counter has risen in this step, too. */
static bool wait_message_counter(struct ofi_transport *ofi, uint32_t counter, uint32_t peer) {
  return wait_counter(ofi, counter, (uint32_t)(ofi->base.profile_step + 1), peer);
}

/* ---- before the first step ---- */

static struct ofi_peers *open_peers(const struct pen_transport *transport) {
  const struct pen_plan *plan = transport->plan;
  struct ofi_peers *peers = pen_allocate(1, sizeof *peers, "a transport");
  struct ofi_peer *peer = pen_allocate(pen_group_size(plan, PEN_DATA), sizeof *peer, "a transport");
  *peers = (struct ofi_peers){.peer = peer, .shards_max = 2 * plan->weight_count};
  for (uint32_t d = 0; d < pen_group_size(plan, PEN_DATA); d++) {
    peer[d].used = d != transport->replica &&
                   !is_near(transport, pen_transport_process(transport, PEN_DATA, d));
    peer[d].shards = pen_allocate(peers->shards_max + 1u, sizeof *peer[d].shards, "a transport");
  }
  return peers;
}

/* Which ranks this one exchanges anything with over the fabric: they write in both directions. */
static bool *list_peers(const struct pen_transport *transport, const struct pen_links *links) {
  const struct ofi_peers *replicas = ((const struct ofi_transport *)transport)->peers;
  const uint32_t count = pen_process_count(transport->plan);
  bool *peers = pen_allocate(count, sizeof *peers, "the connections of a rank");
  for (uint32_t d = 0; d < pen_group_size(transport->plan, PEN_DATA); d++) {
    peers[pen_transport_process(transport, PEN_DATA, d)] = replicas->peer[d].used;
  }
  for (uint32_t r = 0; r < count; r++) {
    peers[r] = peers[r] || links->to[r] || links->from[r];
  }
  return peers;
}

/* The counters of all messages that come from ranks that are not near. */
static struct pen_link_delays *open_delays(const struct pen_transport *transport) {
  const struct pen_plan *plan = transport->plan;
  struct pen_link_delays *delays =
      pen_link_delays_open(pen_ofi_counters_before(plan, plan->profile_count));
  for (uint32_t p = 0; p < plan->profile_count; p++) {
    const struct pen_profile *profile = &plan->profiles[p];
    for (uint32_t m = 0; m < profile->message_count; m++) {
      const struct pen_channel *channel = &profile->channels[profile->messages[m].channel];
      const uint32_t from = pen_transport_process(transport, PEN_PIPELINE, channel->from_rank);
      if (pen_transport_process(transport, PEN_PIPELINE, channel->to_rank) ==
              pen_transport_self(transport) &&
          !is_near(transport, from)) {
        pen_link_delays_add_counter(delays, transport->endpoint,
                                    pen_ofi_counters_before(plan, p) + m, from);
      }
    }
  }
  return delays;
}

/* The first transport's delays are those of all. */
static void count_delay(void *ofi, uint32_t counter, uint32_t delay) {
  pen_link_delays_arrived(((struct ofi_transport *)ofi)->delays, counter, delay);
}

static void count_wait(void *ofi, uint64_t waited_ns) {
  ((struct ofi_transport *)ofi)->base.endpoint->waited_ns += waited_ns;
}

static void ofi_export(struct pen_transport *transport) {
  const struct pen_plan *plan = transport->plan;
  const uint32_t self = pen_transport_self(transport);
  struct ofi_transport *ofi = ofi_of(transport);
  ofi->peers = open_peers(transport);
  ofi->delays = open_delays(transport);
  const struct pen_fabric_config config = {
      .host = transport->shared->address[0] != '\0' ? transport->shared->address : "localhost",
      .arena = transport->arena,
      .arena_bytes = plan->memory[transport->rank].arena_bytes,
      .region_bytes = pen_group_size(plan, PEN_DATA) > 1 ? plan->memory[transport->rank].arena_bytes
                                                         : pen_shared_bytes(plan, transport->rank),
      .counter_count = pen_ofi_peer_counter(plan, PEN_OFI_PEER_COUNTERS, 0),
      .peer_count = pen_process_count(plan),
      .self = self,
      .abort = &transport->shared->control->abort_status,
      .spin_ns = transport->shared->control->spin_ns,
      .waits_for = &transport->endpoint->self->waits_for,
      .arrived = count_delay,
      .waited = count_wait,
      .context = ofi,
  };
  struct pen_fabric_address address;
  ofi->fabric = pen_fabric_open(&config, &address);
  memcpy(transport->endpoint->self->fabric_address, &address, sizeof address);
  if (transport->announces && self == 0) {
    pen_say("transport ofi", "%s", pen_fabric_provider(ofi->fabric));
  }
}

static void poll_fabric(void *fabric) { pen_fabric_poll(fabric); }

static bool connect_peers(struct pen_transport *transport, const struct pen_links *links) {
  const uint32_t count = pen_process_count(transport->plan);
  struct pen_fabric_address *address =
      pen_allocate(count, sizeof *address, "the connections of a rank");
  bool *peers = list_peers(transport, links);
  for (uint32_t r = 0; r < count; r++) {
    memcpy(&address[r], transport->shared->ranks[r].fabric_address, sizeof address[r]);
  }
  const bool going = pen_fabric_connect(ofi_of(transport)->fabric, address, peers);
  free(address);
  free(peers);
  return going;
}

/* Nothing is in the receive slots yet. */
static bool probe_links(struct pen_transport *transport, const struct pen_links *links) {
  const struct ofi_transport *ofi = ofi_of(transport);
  struct pen_rank_state *self = transport->endpoint->self;
  const bool going =
      pen_fabric_probe(ofi->fabric, links->to, links->from, pen_links_probe_bytes(transport->plan));
  for (uint32_t l = 0; l < PEN_TIMED_LINKS; l++) {
    if (self->link_peers[l] != 0) {
      self->link_probes[l] = *pen_fabric_probe_of(ofi->fabric, self->link_peers[l] - 1);
    }
  }
  return going;
}

static void connect_first(struct pen_transport *transport) {
  struct pen_links links = pen_links_of(transport, ofi_of(transport)->shares_memory);
  if (connect_peers(transport, &links) && probe_links(transport, &links)) {
    transport->endpoint->progress = poll_fabric;
    transport->endpoint->progress_context = ofi_of(transport)->fabric;
  }
  pen_links_free(&links);
}

static void ofi_connect(struct pen_transport *transport) {
  struct ofi_transport *ofi = ofi_of(transport);
  if (transport->first != NULL) {
    const struct ofi_transport *first = (const struct ofi_transport *)transport->first;
    ofi->fabric = first->fabric;
    ofi->peers = first->peers;
    ofi->delays = first->delays;
  } else {
    connect_first(transport);
  }
}

/* ---- actions ---- */

static void ofi_begin_step(struct pen_transport *transport, uint64_t run_step) {
  struct ofi_transport *ofi = ofi_of(transport);
  ofi->shm->ops->begin_step(ofi->shm, run_step);
  ofi->ended_before =
      atomic_load_explicit(&transport->endpoint->self->exchanged.count, memory_order_relaxed);
}

static void ofi_end_step(struct pen_transport *transport) {
  struct ofi_transport *ofi = ofi_of(transport);
  pen_fabric_wait_all(ofi->fabric);
  pen_link_delays_end_step(ofi->delays, &transport->endpoint->timing);
  ofi->shm->ops->end_step(ofi->shm);
  transport->profile_step++;
}

static bool ofi_send(struct pen_transport *transport, uint32_t index) {
  struct ofi_transport *ofi = ofi_of(transport);
  const struct pen_message *message = pen_transport_message(transport, index);
  const uint32_t to = receiver_of(transport, index);
  if (is_near(transport, to)) {
    return ofi->shm->ops->send(ofi->shm, index);
  }
  return (message->credit == PEN_NONE ||
          wait_message_counter(ofi, credit_counter(ofi, index), to)) &&
         pen_fabric_put(ofi->fabric,
                        &(struct pen_fabric_request){
                            .peer = to,
                            .from = transport->arena + message->source_offset,
                            .bytes = message->bytes,
                            .offset = message->target_offset,
                            .counter = arrival_counter(ofi, index),
                        },
                        &ofi->sends[index]);
}

static void ofi_wait_sent(struct pen_transport *transport, uint32_t message) {
  struct ofi_transport *ofi = ofi_of(transport);
  pen_fabric_wait_written(ofi->fabric, &ofi->sends[message]);
}

/* Without a credit the sender knows by what this rank sends it later that the target is free. */
static bool ofi_receive(struct pen_transport *transport, uint32_t index, const uint32_t *sends,
                        uint32_t send_count) {
  struct ofi_transport *ofi = ofi_of(transport);
  const uint32_t from = sender_of(transport, index);
  for (uint32_t i = 0; i < send_count; i++) {
    ofi_wait_sent(transport, sends[i]);
  }
  if (is_near(transport, from)) {
    return ofi->shm->ops->receive(ofi->shm, index, sends, send_count);
  }
  return pen_transport_message(transport, index)->credit == PEN_NONE ||
         pen_fabric_put(
             ofi->fabric,
             &(struct pen_fabric_request){
                 .peer = from, .from = transport->arena, .counter = credit_counter(ofi, index)},
             &ofi->credits[index]);
}

static bool ofi_wait(struct pen_transport *transport, uint32_t index) {
  struct ofi_transport *ofi = ofi_of(transport);
  const uint32_t from = sender_of(transport, index);
  return is_near(transport, from) ? ofi->shm->ops->wait(ofi->shm, index)
                                  : wait_message_counter(ofi, arrival_counter(ofi, index), from);
}

/* ---- what the control connection copies between hosts, and ranks of one host do ---- */

static bool ofi_publish(struct pen_transport *transport) {
  struct pen_transport *shm = ofi_of(transport)->shm;
  return shm->ops->publish(shm);
}

static bool ofi_gather(struct pen_transport *transport) {
  struct pen_transport *shm = ofi_of(transport)->shm;
  return shm->ops->gather(shm);
}

/* ---- collectives ---- */

static bool wait_peer(struct ofi_transport *ofi, uint32_t replica, uint32_t needed) {
  struct pen_transport *transport = &ofi->base;
  const uint32_t peer = pen_transport_process(transport, PEN_DATA, replica);
  return ofi->peers->peer[replica].used
             ? wait_counter(ofi, pen_ofi_peer_counter(transport->plan, PEN_OFI_ENDED, replica),
                            needed, peer)
             : pen_endpoint_wait(transport->endpoint, &transport->shared->ranks[peer].exchanged,
                                 needed, peer);
}

static bool ofi_wait_group(struct pen_transport *transport, int group, uint32_t count) {
  struct ofi_transport *ofi = ofi_of(transport);
  bool going = true;
  if (group == PEN_TENSOR) { /* its members are on one host */
    return ofi->shm->ops->wait_group(ofi->shm, group, count);
  }
  for (uint32_t d = 0; d < pen_group_size(transport->plan, group) && going; d++) {
    going = d == transport->replica || wait_peer(ofi, d, ofi->ended_before + count);
  }
  return going;
}

/* Raises a counter of each peer that is not near. */
static void raise_counters(struct ofi_transport *ofi, enum pen_ofi_peer_counter which) {
  const struct pen_transport *transport = &ofi->base;
  for (uint32_t d = 0; d < pen_group_size(transport->plan, PEN_DATA); d++) {
    struct ofi_peer *peer = &ofi->peers->peer[d];
    struct pen_fabric_write *write = which == PEN_OFI_ENDED ? &peer->ended : &peer->ready;
    if (peer->used && pen_fabric_wait_written(ofi->fabric, write)) {
      pen_fabric_put(
          ofi->fabric,
          &(struct pen_fabric_request){
              .peer = pen_transport_process(transport, PEN_DATA, d),
              .from = transport->arena,
              .counter = pen_ofi_peer_counter(transport->plan, which, transport->replica)},
          write);
    }
  }
}

static void ofi_signal_group(struct pen_transport *transport, int group) {
  struct ofi_transport *ofi = ofi_of(transport);
  ofi->shm->ops->signal_group(ofi->shm, group);
  if (group == PEN_DATA) {
    raise_counters(ofi, PEN_OFI_ENDED);
  }
}

static unsigned char *ofi_member_arena(struct pen_transport *transport, int group,
                                       uint32_t member) {
  struct pen_transport *shm = ofi_of(transport)->shm;
  const bool near =
      group == PEN_TENSOR || is_near(transport, pen_transport_process(transport, group, member));
  return near ? shm->ops->member_arena(shm, group, member) : NULL;
}

static void ofi_group_begin(struct pen_transport *transport) {
  struct ofi_transport *ofi = ofi_of(transport);
  ofi->peers->groups++;
  for (uint32_t d = 0; d < pen_group_size(transport->plan, PEN_DATA); d++) {
    ofi->peers->peer[d].shards_sent = 0;
  }
  raise_counters(ofi, PEN_OFI_READY);
}

/* Each side writes what the other receives, once that is ready for it. */
static void ofi_sendrecv(struct pen_transport *transport, const struct pen_sendrecv *sendrecv) {
  struct ofi_transport *ofi = ofi_of(transport);
  const uint32_t global = pen_transport_process(transport, sendrecv->group, sendrecv->member),
                 data_rank = pen_group_member(transport->plan, global, PEN_DATA);
  struct ofi_peer *peer = &ofi->peers->peer[data_rank];
  if (!peer->used) {
    ofi->shm->ops->sendrecv(ofi->shm, sendrecv);
    return;
  }
  peer->shards_expected++;
  pen_assert(peer->shards_sent < ofi->peers->shards_max);
  if (wait_counter(ofi, pen_ofi_peer_counter(transport->plan, PEN_OFI_READY, data_rank),
                   ofi->peers->groups, global)) {
    pen_fabric_put(
        ofi->fabric,
        &(struct pen_fabric_request){
            .peer = global,
            .from = transport->arena + sendrecv->send_offset,
            .bytes = sendrecv->send_bytes,
            .offset = sendrecv->target_offset,
            .counter = pen_ofi_peer_counter(transport->plan, PEN_OFI_SHARDS, transport->replica)},
        &peer->shards[peer->shards_sent++]);
  }
}

static void ofi_group_end(struct pen_transport *transport) {
  struct ofi_transport *ofi = ofi_of(transport);
  for (uint32_t d = 0; d < pen_group_size(transport->plan, PEN_DATA); d++) {
    if (ofi->peers->peer[d].used) {
      wait_counter(ofi, pen_ofi_peer_counter(transport->plan, PEN_OFI_SHARDS, d),
                   ofi->peers->peer[d].shards_expected,
                   pen_transport_process(transport, PEN_DATA, d));
    }
  }
  pen_fabric_wait_all(ofi->fabric);
}

static const struct pen_transport_ops ofi_ops = {
    .name = "ofi",
    .export_handles = ofi_export,
    .connect = ofi_connect,
    .begin_step = ofi_begin_step,
    .send = ofi_send,
    .receive = ofi_receive,
    .wait = ofi_wait,
    .wait_sent = ofi_wait_sent,
    .publish = ofi_publish,
    .gather = ofi_gather,
    .end_step = ofi_end_step,
    .wait_group = ofi_wait_group,
    .signal_group = ofi_signal_group,
    .member_arena = ofi_member_arena,
    .group_begin = ofi_group_begin,
    .sendrecv = ofi_sendrecv,
    .group_end = ofi_group_end,
    .abort = pen_transport_no_call,
};

struct pen_transport *pen_ofi_open(const struct pen_transport_config *config) {
  struct ofi_transport *made = pen_allocate(1, sizeof *made, "a transport");
  const struct pen_plan *plan = config->endpoint->plan;
  pen_transport_fill(&made->base, config);
  made->base.ops = &ofi_ops;
  made->shm = pen_shm_open(config);
  made->shares_memory = pen_transport_row(plan->transport)->within == PEN_TRANSPORT_SHM;
  made->first_counter = pen_ofi_counters_before(plan, (size_t)(config->profile - plan->profiles));
  made->sends =
      pen_allocate(config->profile->message_count + 1u, sizeof *made->sends, "a transport");
  made->credits =
      pen_allocate(config->profile->message_count + 1u, sizeof *made->credits, "a transport");
  return &made->base;
}
