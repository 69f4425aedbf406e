/* rendezvous.h: connects the commands of a run, before its start and again after a loss: all to one
 * of them, the server (pen_membership_server()), which gives the ranks of lost hosts to spares, or
 * takes a fallback of the plan for the hosts that live. */
#ifndef PEN_RENDEZVOUS_H
#define PEN_RENDEZVOUS_H

#include "runtime/comm/shared_control.h"
#include "runtime/control/control_accept.h"
#include "runtime/control/control_connect.h"

/* The command on another host. */
struct pen_peer_command {
  struct pen_control_link link;
  uint32_t host, only;
  struct pen_place place;    /* where it listens for copies */
  struct pen_rank_set ranks; /* empty: a spare that waits */
  uint64_t silent_ns;        /* since something has come from it */
  bool arrives; /* it is proved, but has not sent PLACE, its first message: only that is received */
  uint64_t place_end_ns; /* when it must have, before the ranks start */
  bool finished; /* it has sent GOODBYE, its last message; it receives until all have sent theirs */
};

struct pen_peers {
  struct pen_peer_command *command; /* of the server: all others; elsewhere: the server */
  uint32_t count, most;
  bool serves, listens;
  double places_s; /* how long the server may say nothing before the ranks have places */
  bool is_broken;  /* the server's connection has ended before the ranks have places: */
  int error;       /* with this errno, as pen_control_link_receive() */
  struct pen_control_server server; /* while it listens; spares may come at any time */
  bool mirrors;
  struct pen_control_server mirror; /* for the copies of the host before: see mirror.h */
  char address[PEN_ADDRESS_BYTES];  /* where the others reach this host */
};

/* Connects this command to the others, and returns when all ranks of the plan have a command; sets
 * the plan and the places of config->membership, and peers->address. A command that is lost
 * meanwhile counts as one that has come: pen_control_tcp_agree() finds it. Fails (75) when commands
 * do not come within `timeout_s`, (64) when two start the same rank or do not have the same secret,
 * (76) when they have other plans. */
void pen_rendezvous(const struct pen_control_config *config, struct pen_peers *peers,
                    double timeout_s);

/* The server, at any time while it listens: lets commands in that have no ranks, which then arrive.
 * Does not wait, as the next one. */
void pen_rendezvous_poll(const struct pen_control_config *config, struct pen_peers *peers);

/* For a command that arrives: 1: it has, and is told the places. 0: not yet. -1, with errno: the
 * connection is broken. */
int pen_rendezvous_arrive(const struct pen_control_config *config, struct pen_peer_command *peer);

/* After its loss: the command may come again, as another peer. */
void pen_rendezvous_forget(struct pen_peer_command *peer);

/* In any process: closes the sockets. */
void pen_peers_close(struct pen_peers *peers);

#endif
