/* Which cards of a node a container gets.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_LINKS_H
#define AQ_LINKS_H

#include <stdbool.h>

#include "laying.h"

/* The best liked card with room that is not taken yet; of equals the one of the lowest column. NULL: there is none. */
aq_card *aq_links_best_liked(const aq_table *table);

/* Marks as taken, of the cards with room, those that are liked and linked best; adds how good their links are to the grade.
 * There are at least as many as the container asks for. False: no set has what is demanded. */
bool aq_links_choose(const aq_table *table, const aq_class *class, const aq_turn *turn, int64_t shape, double *grade);

#endif
