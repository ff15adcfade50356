/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_SEATS_H
#define AQ_SEATS_H

#include "state.h"

typedef void (*aq_seat_visit)(const aq_law *law, aq_tenant *tenant, aq_seat *seat, void *of);

/* Visits all seats at a card. */
void aq_seats_at(const aq_law *law, const aq_card *card, aq_seat_visit visit, void *of);

#endif
