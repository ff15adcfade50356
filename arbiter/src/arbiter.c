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
#include "guest.h"
#include "lateness.h"
#include "probe.h"
#include "thread.h"

#define BEAT_NS UINT64_C(10000000)
#define SILENT_NS UINT64_C(60000000) /* then tenants go by their own clocks, as libshim's lease.c says */
#define BEAT_SLACK_NS UINT64_C(3000000) /* sooner, if the thread is awake */
#define LOOK_NS UINT64_C(100000000) /* at everybody, though nobody rang */
#define TRIES 4                   /* to let in who comes when somebody was kept out */

struct aq_arbiter {
  pthread_mutex_t lock; /* over all below but `calls`, and over the files of guests */
  pthread_t thread;
  bool running, leaving;
  aq_law *law;
  aq_guest *guests;
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
  aq_law_interrupt(arbiter->law, now);
  for (aq_guest *guest = arbiter->guests; guest; guest = guest->next) aq_guest_interrupt(guest);
  arbiter->looked_ns = 0;
}

/* Before anything else: who finds a gate with a new number finds the heartbeat as well. If it came late tenants may have gone
 * by their own clocks since the last one, with whatever tickets they had. */
static void beat(aq_arbiter *arbiter) {
  uint64_t before = arbiter->beat_ns;
  arbiter->beat_ns = aq_now_ns();
  for (aq_guest *guest = arbiter->guests; guest; guest = guest->next) {
    aq_files_beat(&guest->files, arbiter->beat_ns);
    aq_guest_tell_accounts(guest);
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
    next = aq_law_step(arbiter->law, now);
    again = false;
    for (aq_guest *guest = arbiter->guests; guest; guest = guest->next)
      if (aq_guest_tell(guest)) aq_guest_read(guest, arbiter->law, AQ_ALL_SLOTS, false, aq_now_ns()), again = true;
  }
  return again ? now : next;
}

/* Who has woken us, those of whom something is to be seen without a bell, those whose bells are rate limited, or all. */
static void look(aq_arbiter *arbiter, const aq_guest *waker, bool any_rang, bool all) {
  for (aq_guest *guest = arbiter->guests; guest; guest = guest->next) {
    bool watched = aq_law_holds(guest->tenant) || aq_law_suspect(arbiter->law, guest->tenant);
    if (!all && !any_rang && !watched && !guest->rate_limited && guest != waker) continue;
    aq_depth depth = all ? AQ_ALL_SLOTS : watched ? AQ_KNOWN_SLOTS : AQ_BELLS_ONLY;
    aq_guest_read(guest, arbiter->law, depth, guest == waker, aq_now_ns());
  }
}

static const aq_guest *rung_by(const aq_arbiter *arbiter, int place) {
  int bells = 0;
  for (const aq_guest *guest = arbiter->guests; guest; guest = guest->next) {
    bells += (int)guest->awaited;
    if (place <= bells) return guest;
  }
  return NULL;
}

static int wait_until(aq_arbiter *arbiter, uint64_t until) {
  aq_waiting_begin(&arbiter->waiting, &arbiter->calls, arbiter->heard);
  uint64_t now = aq_now_ns();
  for (aq_guest *guest = arbiter->guests; guest; guest = guest->next)
    until = sooner(until, aq_guest_await(guest, arbiter->law, &arbiter->waiting, now));
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
    aq_law_late(arbiter->law, aq_probe_late(&arbiter->probe));
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
  aq_law *law = arbiter ? aq_law_new(rules, aq_now_ns()) : NULL;
  if (!law) {
    free(arbiter);
    return NULL;
  }
  arbiter->law = law;
  arbiter->waiting.polls = polls;
  init_lock(&arbiter->lock);
  return arbiter;
}

void aq_arbiter_free(aq_arbiter *arbiter) {
  aq_law_free(arbiter->law);
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

/* ---- groups of guests ---- */

/* Seats have left a tenant: those behind them have moved up. */
static void move_up(aq_arbiter *arbiter, const aq_tenant *tenant, uint32_t first, uint32_t count) {
  for (aq_guest *guest = arbiter->guests; guest; guest = guest->next)
    if (guest->tenant == tenant && guest->first > first) guest->first -= count;
}

static bool move(aq_arbiter *arbiter, aq_guest *guest, aq_tenant *to) {
  aq_tenant *from = guest->tenant;
  uint32_t before = guest->first, first = before;
  to = aq_law_move(arbiter->law, from, &first, guest->count, to);
  if (!to) return false;
  guest->tenant = NULL;
  move_up(arbiter, from, before, guest->count);
  aq_guest_move(guest, to, first);
  return true;
}

/* To the first of its group, of another tenant, that has none of its cards. False: there is none. */
static bool join_group(aq_arbiter *arbiter, aq_guest *guest) {
  for (aq_guest *other = arbiter->guests; guest->group && other; other = other->next)
    if (other->group == guest->group && other->tenant != guest->tenant && move(arbiter, guest, other->tenant)) return true;
  return false;
}

static bool is_alone(const aq_arbiter *arbiter, const aq_guest *guest) {
  for (const aq_guest *other = arbiter->guests; other; other = other->next)
    if (other != guest && other->tenant == guest->tenant) return false;
  return true;
}

/* Others of a group whose cards were this one's may belong to its tenant now. */
static void complete_group(aq_arbiter *arbiter, uint32_t group) {
  for (aq_guest *guest = arbiter->guests; guest; guest = guest->next)
    if (guest->group == group && is_alone(arbiter, guest)) join_group(arbiter, guest);
}

/* ---- its guests ---- */

static int enter(aq_arbiter *arbiter, aq_guest *guest, const aq_terms *terms) {
  aq_tenant *tenant = aq_law_enter(arbiter->law, terms, guest->count);
  if (!tenant) return ENOMEM;
  aq_guest_seat(guest, tenant, aq_now_ns());
  guest->next = arbiter->guests;
  arbiter->guests = guest;
  join_group(arbiter, guest);
  call(arbiter);
  return 0;
}

int aq_arbiter_enter(aq_arbiter *arbiter, const char *control, const char *usage, uint32_t group, const aq_terms *terms,
                     uint32_t count, aq_guest **entered) {
  aq_guest *guest = calloc(1, sizeof *guest);
  if (!guest) return ENOMEM;
  guest->group = group;
  int error = aq_guest_open(guest, control, usage, terms, count);
  if (!error) {
    pthread_mutex_lock(&arbiter->lock);
    error = enter(arbiter, guest, terms);
    pthread_mutex_unlock(&arbiter->lock);
    if (error) aq_files_close(&guest->files);
  }
  if (error) free(guest);
  else *entered = guest;
  return error;
}

void aq_arbiter_change(aq_arbiter *arbiter, aq_guest *guest, const aq_terms *terms) {
  pthread_mutex_lock(&arbiter->lock);
  aq_law_change(guest->tenant, guest->first, terms, guest->count);
  call(arbiter);
  pthread_mutex_unlock(&arbiter->lock);
}

void aq_arbiter_group(aq_arbiter *arbiter, aq_guest *guest, uint32_t group) {
  pthread_mutex_lock(&arbiter->lock);
  uint32_t before = guest->group;
  guest->group = group;
  if (!join_group(arbiter, guest) && !is_alone(arbiter, guest)) move(arbiter, guest, NULL);
  complete_group(arbiter, before);
  call(arbiter);
  pthread_mutex_unlock(&arbiter->lock);
}

void aq_arbiter_exempt(aq_arbiter *arbiter, aq_guest *guest, int exempt) {
  pthread_mutex_lock(&arbiter->lock);
  aq_law_exempt(guest->tenant, exempt);
  call(arbiter);
  pthread_mutex_unlock(&arbiter->lock);
}

void aq_arbiter_leave(aq_arbiter *arbiter, aq_guest *guest) {
  pthread_mutex_lock(&arbiter->lock);
  aq_guest **link = &arbiter->guests;
  while (*link != guest) link = &(*link)->next;
  *link = guest->next;
  move_up(arbiter, guest->tenant, guest->first, guest->count);
  aq_law_leave(arbiter->law, guest->tenant, guest->first, guest->count);
  complete_group(arbiter, guest->group);
  call(arbiter);
  pthread_mutex_unlock(&arbiter->lock);
  aq_files_forsake(&guest->files);
  aq_files_close(&guest->files);
  free(guest);
}

void aq_arbiter_doubt(aq_arbiter *arbiter, aq_guest *guest, int doubted) {
  pthread_mutex_lock(&arbiter->lock);
  guest->doubted = doubted;
  if (!doubted) aq_guest_forgive(guest, aq_now_ns());
  call(arbiter);
  pthread_mutex_unlock(&arbiter->lock);
}

void aq_arbiter_absent(aq_arbiter *arbiter, aq_guest *guest, uint32_t seats) {
  pthread_mutex_lock(&arbiter->lock);
  aq_law_absent(guest->tenant, guest->first, guest->count, seats);
  pthread_mutex_unlock(&arbiter->lock);
}

void aq_arbiter_quantum(aq_arbiter *arbiter, const char *card, uint64_t lease_ns) {
  pthread_mutex_lock(&arbiter->lock);
  if (aq_law_quantum(arbiter->law, card, lease_ns)) call(arbiter);
  pthread_mutex_unlock(&arbiter->lock);
}

void aq_arbiter_state(aq_arbiter *arbiter, aq_guest *guest, aq_guest_state *state) {
  pthread_mutex_lock(&arbiter->lock);
  for (uint32_t i = 0; i < guest->count; i++) state->accounts[i] = aq_law_account(guest->tenant, guest->first + i);
  state->trust = aq_guest_trust(guest);
  state->damage = guest->damage;
  pthread_mutex_unlock(&arbiter->lock);
}

void aq_arbiter_lateness(aq_arbiter *arbiter, aq_lateness *lateness) {
  pthread_mutex_lock(&arbiter->lock);
  *lateness = arbiter->lateness;
  pthread_mutex_unlock(&arbiter->lock);
}
