/* A thread has the signal mask of whom started it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "thread.h"

#include <signal.h>
#include <stddef.h>

int aq_thread_start(pthread_t *thread, void *(*run)(void *), void *argument) {
  pthread_t unnamed;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = pthread_create(thread ? thread : &unnamed, NULL, run, argument);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (!error && !thread) pthread_detach(unnamed);
  return error;
}
