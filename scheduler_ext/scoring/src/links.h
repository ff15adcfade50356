/* Which cards of a node a container gets.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_LINKS_H
#define AQ_LINKS_H

#include <stdbool.h>

#include "scoring.h"

/* The best liked card with room that is not taken yet; of equals the one of the lowest column. NULL: there is none. */
aq_card *aq_links_best_liked(const aq_table *table);

/* How the cards of a container are linked. */
typedef struct {
  double grade; /* how well, from 0 to less than 1 */
  int64_t lack; /* what they lack */
} aq_bond;

/* Marks as taken, of the cards with room, those that are liked and linked best, and tells how they are linked. There
 * are at least as many as the container asks for. False: no set has what is demanded. */
bool aq_links_choose(const aq_table *table, const aq_class *class, const aq_turn *turn, int64_t shape, aq_bond *bond);

#endif
