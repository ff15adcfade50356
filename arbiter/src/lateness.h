/* How late the arbiter's thread wakes, each time that it sleeps until an instant.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_LATENESS_H
#define AQ_LATENESS_H

#include "arbiter.h"

void aq_lateness_count(aq_lateness *lateness, uint64_t late_ns);

#endif
