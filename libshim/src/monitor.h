/* The thread that watches what is in flight. It exists only in processes that submitted capped work.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_MONITOR_H
#define AQ_MONITOR_H

#include <stdbool.h>
#include <stdint.h>

/* Starts the thread unless it runs. False, with a note in the usage page, when there cannot be one. */
bool aq_monitor_start(void);

/* The lock of everything about compute. Unlocking wakes the monitor if it sleeps and something is in flight. */
void aq_monitor_lock(void);
void aq_monitor_unlock(void);

/* Under the lock: when everything in flight was last looked at. */
uint64_t aq_monitor_looked_ns(void);

/* Gives up the lock until something finished or the instant `until` has come. */
void aq_monitor_wait(uint64_t until_ns);

#endif
