/* The cards of one node, taken out of the table into its workspace, where a pod can be charged to them at will.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_NODE_H
#define AQ_NODE_H

#include "scoring.h"

/* Takes out a row; `sights`, where there are any, are those of its cards. */
void aq_node_take(const aq_table *table, int64_t row, const aq_sight *sights);

/* Marks the cards with room for a container, and says how many there are. */
int64_t aq_node_room(const aq_table *table, int64_t row, const aq_turn *turn);

int64_t aq_card_need(const aq_card *card, const aq_turn *turn); /* MiB of this card that the container asks for */
void aq_card_charge(aq_card *card, const aq_turn *turn);
double aq_card_fill(const aq_card *card); /* how full its memory is */

/* The cards of a shape that nobody is on and somebody can be, as a mask of columns. */
uint32_t aq_node_empty(const aq_table *table, uint32_t all);

#endif
