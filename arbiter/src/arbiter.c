/* The thread waits for bells and instants; it holds the lock while it works, which is never long.
 * SPDX-License-Identifier: Apache-2.0 */
#include "arbiter.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "aliquot_time_slice.h"
#include "clock.h"
#include "client.h"
#include "lateness.h"
#include "probe.h"
#include "thread.h"

#define BEAT_NS UINT64_C(10000000)
#define SILENT_NS UINT64_C(60000000) /* then tenants go by their own clocks, as libshim's lease.c says */
#define BEAT_SLACK_NS UINT64_C(3000000) /* sooner, if the thread is awake */
#define LOOK_NS UINT64_C(100000000) /* at everybody, though nobody rang */
#define TRIES 4                   /* to let in who comes when somebody was kept out */

struct aq_arbiter {
  pthread_mutex_t lock; /* over all below but `calls`, and over the files of clients */
  pthread_t thread;
  bool running, leaving;
  aq_scheduler *sched;
  aq_client *clients;
  uint64_t beat_ns, looked_ns;
  aq_waiting waiting;
  aq_lateness lateness;
  aq_probe probe;
  uint32_t calls; /* futex word: +1 when something else than a tenant wants a step */
  uint32_t heard; /* of them, those after which all was read */
};

/* ---- the thread ---- */

static uint64_t sooner(uint64_t a, uint64_t b) { return a < b ? a : b; }

static void interrupt(aq_arbiter *arbiter, uint64_t now) {
  aq_scheduler_interrupt(arbiter->sched, now);
  for (aq_client *client = arbiter->clients; client; client = client->next) aq_client_interrupt(client);
  arbiter->looked_ns = 0;
}

/* Before anything else: who finds a gate with a new number finds the heartbeat as well. If it came late tenants may have gone
 * by their own clocks since the last one, with whatever tickets they had. */
static void beat(aq_arbiter *arbiter) {
  uint64_t before = arbiter->beat_ns;
  arbiter->beat_ns = aq_now_ns();
  for (aq_client *client = arbiter->clients; client; client = client->next) {
    aq_files_beat(&client->files, arbiter->beat_ns);
    aq_client_tell_accounts(client);
  }
  uint64_t told = aq_now_ns();
  if (before && told > before + SILENT_NS) interrupt(arbiter, told);
}

/* Until no gate is closed any more: who was kept out has answered by then, or will ring. Of a tenant whose gate was closed all
 * slots are read: a process that had said nothing when it was last read, and began again before the gate was closed, has not rung. */
static uint64_t work(aq_arbiter *arbiter) {
  uint64_t now = 0, next = 0;
  bool again = true;
  for (int i = 0; again && i < TRIES; i++) {
    now = aq_now_ns();
    next = aq_scheduler_step(arbiter->sched, now);
    again = false;
    for (aq_client *client = arbiter->clients; client; client = client->next)
      if (aq_client_tell(client)) aq_client_read(client, arbiter->sched, AQ_ALL_SLOTS, false, aq_now_ns()), again = true;
  }
  return again ? now : next;
}

/* Who has woken us, those of whom something is to be seen without a bell, those whose bells are rate limited, or all. */
static void look(aq_arbiter *arbiter, const aq_client *waker, bool any_rang, bool all) {
  for (aq_client *client = arbiter->clients; client; client = client->next) {
    bool watched = aq_scheduler_holds(client->tenant) || aq_scheduler_suspect(arbiter->sched, client->tenant);
    if (!all && !any_rang && !watched && !client->rate_limited && client != waker) continue;
    aq_depth depth = all ? AQ_ALL_SLOTS : watched ? AQ_KNOWN_SLOTS : AQ_BELLS_ONLY;
    aq_client_read(client, arbiter->sched, depth, client == waker, aq_now_ns());
  }
}

static const aq_client *rung_by(const aq_arbiter *arbiter, int place) {
  int bells = 0;
  for (const aq_client *client = arbiter->clients; client; client = client->next) {
    bells += (int)client->awaited;
    if (place <= bells) return client;
  }
  return NULL;
}

static int wait_until(aq_arbiter *arbiter, uint64_t until) {
  aq_waiting_begin(&arbiter->waiting, &arbiter->calls, arbiter->heard);
  uint64_t now = aq_now_ns();
  for (aq_client *client = arbiter->clients; client; client = client->next)
    until = sooner(until, aq_client_await(client, arbiter->sched, &arbiter->waiting, now));
  pthread_mutex_unlock(&arbiter->lock);
  int place = aq_waiting_wait(&arbiter->waiting, until);
  uint64_t woke = aq_now_ns();
  pthread_mutex_lock(&arbiter->lock);
  if (until > now && woke >= until) aq_lateness_count(&arbiter->lateness, woke - until);
  return place;
}

static void *run(void *of) {
  aq_arbiter *arbiter = of;
  aq_time_slice_shorten();
  prctl(PR_SET_TIMERSLACK, 1);
  prctl(PR_SET_NAME, "aliquot-arbiter");
  pthread_mutex_lock(&arbiter->lock);
  for (int place = -2; !arbiter->leaving;) {
    uint64_t now = aq_now_ns();
    if (now >= arbiter->beat_ns + BEAT_NS - BEAT_SLACK_NS) beat(arbiter);
    uint32_t calls = __atomic_load_n(&arbiter->calls, __ATOMIC_RELAXED);
    bool all = calls != arbiter->heard || now >= arbiter->looked_ns + LOOK_NS;
    arbiter->heard = calls;
    if (all) arbiter->looked_ns = now;
    aq_scheduler_late(arbiter->sched, aq_probe_late(&arbiter->probe));
    look(arbiter, place > 0 ? rung_by(arbiter, place) : NULL, place == -2, all);
    uint64_t next = work(arbiter);
    uint64_t beat_at = arbiter->beat_ns + BEAT_NS;
    place = wait_until(arbiter, sooner(next, beat_at));
  }
  pthread_mutex_unlock(&arbiter->lock);
  return NULL;
}

static void call(aq_arbiter *arbiter) {
  __atomic_fetch_add(&arbiter->calls, 1, __ATOMIC_RELAXED);
  syscall(SYS_futex, &arbiter->calls, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* ---- its life ---- */

/* Whoever has the lock while the thread wants it has its priority. */
static void init_lock(pthread_mutex_t *lock) {
  pthread_mutexattr_t how;
  pthread_mutexattr_init(&how);
  pthread_mutexattr_setprotocol(&how, PTHREAD_PRIO_INHERIT);
  pthread_mutex_init(lock, &how);
  pthread_mutexattr_destroy(&how);
}

aq_arbiter *aq_arbiter_new(const aq_rules *rules, int polls) {
  aq_arbiter *arbiter = calloc(1, sizeof *arbiter);
  aq_scheduler *sched = arbiter ? aq_scheduler_new(rules, aq_now_ns()) : NULL;
  if (!sched) {
    free(arbiter);
    return NULL;
  }
  arbiter->sched = sched;
  arbiter->waiting.polls = polls;
  init_lock(&arbiter->lock);
  return arbiter;
}

void aq_arbiter_free(aq_arbiter *arbiter) {
  aq_scheduler_free(arbiter->sched);
  pthread_mutex_destroy(&arbiter->lock);
  free(arbiter);
}

int aq_arbiter_start(aq_arbiter *arbiter, int real_time) {
  arbiter->leaving = false;
  int error = aq_probe_start(&arbiter->probe);
  if (error) return error;
  error = aq_thread_start(&arbiter->thread, real_time, run, arbiter);
  if (error) aq_probe_stop(&arbiter->probe);
  arbiter->running = !error;
  return error;
}

void aq_arbiter_stop(aq_arbiter *arbiter) {
  if (!arbiter->running) return;
  pthread_mutex_lock(&arbiter->lock);
  arbiter->leaving = true;
  call(arbiter);
  pthread_mutex_unlock(&arbiter->lock);
  pthread_join(arbiter->thread, NULL);
  aq_probe_stop(&arbiter->probe);
  arbiter->running = false;
}

/* ---- groups of clients ---- */

/* Entities have left a tenant: those behind them have moved up. */
static void move_up(aq_arbiter *arbiter, const aq_tenant *tenant, uint32_t first, uint32_t count) {
  for (aq_client *client = arbiter->clients; client; client = client->next)
    if (client->tenant == tenant && client->first > first) client->first -= count;
}

static bool move(aq_arbiter *arbiter, aq_client *client, aq_tenant *to) {
  aq_tenant *from = client->tenant;
  uint32_t before = client->first, first = before;
  to = aq_scheduler_move(arbiter->sched, from, &first, client->count, to);
  if (!to) return false;
  client->tenant = NULL;
  move_up(arbiter, from, before, client->count);
  aq_client_move(client, to, first);
  return true;
}

/* To the first of its group, of another tenant, that has none of its cards. False: there is none. */
static bool join_group(aq_arbiter *arbiter, aq_client *client) {
  for (aq_client *other = arbiter->clients; client->group && other; other = other->next)
    if (other->group == client->group && other->tenant != client->tenant && move(arbiter, client, other->tenant)) return true;
  return false;
}

static bool is_alone(const aq_arbiter *arbiter, const aq_client *client) {
  for (const aq_client *other = arbiter->clients; other; other = other->next)
    if (other != client && other->tenant == client->tenant) return false;
  return true;
}

/* Others of a group whose cards were this one's may belong to its tenant now. */
static void complete_group(aq_arbiter *arbiter, uint32_t group) {
  for (aq_client *client = arbiter->clients; client; client = client->next)
    if (client->group == group && is_alone(arbiter, client)) join_group(arbiter, client);
}

/* ---- its clients ---- */

static int enter(aq_arbiter *arbiter, aq_client *client, const aq_terms *terms) {
  aq_tenant *tenant = aq_scheduler_enter(arbiter->sched, terms, client->count);
  if (!tenant) return ENOMEM;
  aq_client_entity(client, tenant, aq_now_ns());
  client->next = arbiter->clients;
  arbiter->clients = client;
  join_group(arbiter, client);
  call(arbiter);
  return 0;
}

int aq_arbiter_enter(aq_arbiter *arbiter, const char *control, const char *usage, uint32_t group, const aq_terms *terms,
                     uint32_t count, aq_client **entered) {
  aq_client *client = calloc(1, sizeof *client);
  if (!client) return ENOMEM;
  client->group = group;
  int error = aq_client_open(client, control, usage, terms, count);
  if (!error) {
    pthread_mutex_lock(&arbiter->lock);
    error = enter(arbiter, client, terms);
    pthread_mutex_unlock(&arbiter->lock);
    if (error) aq_files_close(&client->files);
  }
  if (error) free(client);
  else *entered = client;
  return error;
}

void aq_arbiter_change(aq_arbiter *arbiter, aq_client *client, const aq_terms *terms) {
  pthread_mutex_lock(&arbiter->lock);
  aq_scheduler_change(client->tenant, client->first, terms, client->count);
  call(arbiter);
  pthread_mutex_unlock(&arbiter->lock);
}

void aq_arbiter_group(aq_arbiter *arbiter, aq_client *client, uint32_t group) {
  pthread_mutex_lock(&arbiter->lock);
  uint32_t before = client->group;
  client->group = group;
  if (!join_group(arbiter, client) && !is_alone(arbiter, client)) move(arbiter, client, NULL);
  complete_group(arbiter, before);
  call(arbiter);
  pthread_mutex_unlock(&arbiter->lock);
}

void aq_arbiter_exempt(aq_arbiter *arbiter, aq_client *client, int exempt) {
  pthread_mutex_lock(&arbiter->lock);
  aq_scheduler_exempt(client->tenant, exempt);
  call(arbiter);
  pthread_mutex_unlock(&arbiter->lock);
}

void aq_arbiter_leave(aq_arbiter *arbiter, aq_client *client) {
  pthread_mutex_lock(&arbiter->lock);
  aq_client **link = &arbiter->clients;
  while (*link != client) link = &(*link)->next;
  *link = client->next;
  move_up(arbiter, client->tenant, client->first, client->count);
  aq_scheduler_leave(arbiter->sched, client->tenant, client->first, client->count);
  complete_group(arbiter, client->group);
  call(arbiter);
  pthread_mutex_unlock(&arbiter->lock);
  aq_files_forsake(&client->files);
  aq_files_close(&client->files);
  free(client);
}

void aq_arbiter_doubt(aq_arbiter *arbiter, aq_client *client, int doubted) {
  pthread_mutex_lock(&arbiter->lock);
  client->doubted = doubted;
  if (!doubted) aq_client_forgive(client, aq_now_ns());
  call(arbiter);
  pthread_mutex_unlock(&arbiter->lock);
}

void aq_arbiter_absent(aq_arbiter *arbiter, aq_client *client, uint32_t entities) {
  pthread_mutex_lock(&arbiter->lock);
  aq_scheduler_absent(client->tenant, client->first, client->count, entities);
  pthread_mutex_unlock(&arbiter->lock);
}

void aq_arbiter_quantum(aq_arbiter *arbiter, const char *card, uint64_t lease_ns) {
  pthread_mutex_lock(&arbiter->lock);
  if (aq_scheduler_quantum(arbiter->sched, card, lease_ns)) call(arbiter);
  pthread_mutex_unlock(&arbiter->lock);
}

void aq_arbiter_state(aq_arbiter *arbiter, aq_client *client, aq_client_state *state) {
  pthread_mutex_lock(&arbiter->lock);
  for (uint32_t i = 0; i < client->count; i++) state->accounts[i] = aq_scheduler_account(client->tenant, client->first + i);
  state->trust = aq_client_trust(client);
  state->damage = client->damage;
  pthread_mutex_unlock(&arbiter->lock);
}

void aq_arbiter_lateness(aq_arbiter *arbiter, aq_lateness *lateness) {
  pthread_mutex_lock(&arbiter->lock);
  *lateness = arbiter->lateness;
  pthread_mutex_unlock(&arbiter->lock);
}
