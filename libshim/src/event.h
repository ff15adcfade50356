/* Events of our own, to measure with. They are made and destroyed with no lock held: a driver may call the program back.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_EVENT_H
#define AQ_EVENT_H

#include <stdbool.h>

#include "cuda_abi.h"

typedef struct {
  CUevent start, end;
} aq_events;

/* In the current context; NULL when there is none to be had. No capture of the thread is disturbed. */
CUevent aq_event_new(void);

/* Both or none. */
bool aq_events_new(aq_events *events);

/* Those that are not NULL, in whichever context. */
void aq_event_end(CUevent event);
void aq_events_end(const aq_events *events);

#endif
