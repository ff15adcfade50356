/* Threads of ours in somebody's program.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_THREAD_H
#define AQ_THREAD_H

#include <pthread.h>

/* Starts one with all signals blocked: the program's handlers never run on it. Nobody waits for it if `thread` is NULL. Returns 0, or
 * an errno value. */
int aq_thread_start(pthread_t *thread, void *(*run)(void *), void *argument);

#endif
