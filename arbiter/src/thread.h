/* Threads of ours in somebody's program.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_THREAD_H
#define AQ_THREAD_H

#include <pthread.h>
#include <stdbool.h>

/* Starts one with all signals blocked: the program's handlers never run on it. Nobody waits for it if `thread` is NULL. With real-time
 * priority it waits for no thread of the ordinary class. Returns 0, or an errno value; EPERM: that priority is not allowed. */
int aq_thread_start(pthread_t *thread, bool real_time, void *(*run)(void *), void *argument);

#endif
