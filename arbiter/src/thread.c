/* A thread has the signal mask of whom started it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "thread.h"

#include <sched.h>
#include <signal.h>
#include <stddef.h>

static void set_real_time(pthread_attr_t *how) {
  struct sched_param least = {.sched_priority = sched_get_priority_min(SCHED_FIFO)};
  pthread_attr_setinheritsched(how, PTHREAD_EXPLICIT_SCHED);
  pthread_attr_setschedpolicy(how, SCHED_FIFO);
  pthread_attr_setschedparam(how, &least);
}

int aq_thread_start(pthread_t *thread, bool real_time, void *(*run)(void *), void *argument) {
  pthread_t unnamed;
  pthread_attr_t how;
  sigset_t all, before;
  sigfillset(&all);
  pthread_attr_init(&how);
  if (real_time) set_real_time(&how);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = pthread_create(thread ? thread : &unnamed, &how, run, argument);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&how);
  if (!error && !thread) pthread_detach(unnamed);
  return error;
}
