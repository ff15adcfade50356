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

#define AQ_WHOLE_CARD 10000 /* a share: hundredths of a percent of the card's time */

uint64_t aq_now_ns(void);

/* Charges the work of [start, end) at `share` of the card (0: all of it); returns the nanoseconds that nobody had charged yet. `others`
 * is what other processes have charged since `start`: a long kernel lies under the charges of many short ones, which
 * all end before it does and leave gaps that only it can fill. It is left what they may have charged since `end`: those
 * whose work ended later may well have been charged earlier. */
uint64_t aq_clock_charge(aq_usage_card *card, uint32_t share, uint64_t start, uint64_t end, uint64_t *others);

/* Charges work whose time on the card is only estimated. */
void aq_clock_charge_estimate(aq_usage_card *card, uint32_t share, uint64_t busy, uint64_t now);

/* The instant from which the tenant may submit work again; in the past when it owes nothing. */
uint64_t aq_clock_open_at(const aq_usage_card *card);

/* Forgets a clock that another boot of the machine left in a page on disk. */
void aq_clock_check(aq_usage_card *card, uint64_t now);

#endif
