/* The core limit's clock: two words of the usage page that all processes of a tenant share.
 *
 * covered_until  the end of the latest work that was charged: what several processes or streams had on the card at the same
 *                time is charged once
 * paid_until     busy time is paid for with elapsed time at the tenant's share; before this instant the tenant owes
 *
 * Each is changed by one compare-and-swap, so a process that is stopped or killed anywhere holds up nobody.
 * All times are CLOCK_MONOTONIC in nanoseconds.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_CORE_CLOCK_H
#define AQ_CORE_CLOCK_H

#include "aliquot_pages.h"
#include "intervals.h"

#define AQ_CREDIT_NS UINT64_C(50000000) /* of idle time that is credited */
#define AQ_WHOLE_CARD 10000 /* a share: hundredths of a percent of the card's time */

uint64_t aq_now_ns(void);

/* Says that work which ended at `end` is charged. Returns the end of the latest before it. */
uint64_t aq_clock_cover(aq_usage_card *card, uint64_t end);

/* Charges busy nanoseconds at `share` of the card (0: all of it), which began at `since`; `back` of their price were paid by time
 * that an earlier charge passed over. Returns the time that this one passes over, for being idle; all of it is free, and mostly
 * there is none. */
aq_interval aq_clock_charge(aq_usage_card *card, uint32_t share, uint64_t busy, uint64_t since, uint64_t back);

/* The instant from which the tenant may submit work again; in the past when it owes nothing. */
uint64_t aq_clock_open_at(const aq_usage_card *card);

/* Forgets a clock that another boot of the machine left in a page on disk. */
void aq_clock_check(aq_usage_card *card, uint64_t now);

#endif
