/* Whose turn it is.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_RANK_H
#define AQ_RANK_H

#include "state.h"

/* Looks at all tenants: which of their cards go together, what they want and may claim. */
void aq_rank_all(aq_law *law);

/* What a tenant may claim now, whether it is its turn or not. */
aq_rank aq_rank_of(const aq_law *law, const aq_tenant *tenant);

bool aq_rank_before(const aq_rank *rank, const aq_rank *other);

/* Whether the tenant waits for a lease and may have one. */
bool aq_rank_in_line(const aq_law *law, const aq_tenant *tenant);

/* Whether it is worth ending a lease early. */
bool aq_rank_displaces(const aq_rank *rank, const aq_rank *holder);

/* Of the tenants that wait for a card that the holder has, the one whose turn is next; NULL: there is none. */
const aq_tenant *aq_rank_rival(const aq_law *law, const aq_tenant *holder);

/* When a tenant that waits may claim more than it can now; UINT64_MAX: it depends on others. */
uint64_t aq_rank_rises_at(const aq_law *law, const aq_tenant *tenant);

#endif
