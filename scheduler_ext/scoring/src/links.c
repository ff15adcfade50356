/* Chooses cards by how they are liked and, where that makes a difference, by how they are linked (scheduler_ext/cards/linked_cards.py).
 * SPDX-License-Identifier: Apache-2.0 */
#include "links.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>

#include "node.h"

enum { MOST_LINKED = 32 }; /* columns of a mask */

int64_t aq_best_set(const aq_links *links, uint32_t must, uint32_t may, uint32_t empty) {
  int64_t best = -1, most = 0;
  for (int64_t n = 0; n < links->sets; n++) {
    uint32_t mask = (uint32_t)links->masks[n];
    if (best >= 0 && links->orders[n] < links->orders[best]) break;
    if ((mask & must) != must || (mask & ~may)) continue;
    int64_t rest = links->rest[empty & ~mask & links->all];
    if (best < 0 || rest > most) {
      best = n;
      most = rest;
    }
  }
  return best;
}

/* A set, and what is left of the cards above its lowest. */
static void take_out(int64_t mask, int64_t worth, int64_t left, int64_t *most) {
  for (int64_t rest = left;; rest = (rest - 1) & left) {
    if (worth + most[rest] > most[rest | mask]) most[rest | mask] = worth + most[rest];
    if (!rest) break;
  }
}

/* The lowest card of a mask is in none of the sets, or in one of those of which it is the lowest. Masks are worked out from
 * those with the highest lowest card on, so that what is left when a set is taken out is known. */
void aq_partition(int64_t cards, const int64_t *masks, const int64_t *worths, int64_t count, int64_t *most) {
  most[0] = 0;
  for (int64_t bit = (int64_t)1 << cards >> 1; bit; bit >>= 1) {
    int64_t above = ((int64_t)1 << cards) - 2 * bit;
    take_out(bit, 0, above, most);
    for (int64_t n = 0; n < count; n++)
      if ((masks[n] & -masks[n]) == bit) take_out(masks[n], worths[n], above & ~masks[n], most);
  }
}

/* What a card is worth beside how it is liked: nearness to NICs comes before that. */
static double nearness(const aq_class *class, const aq_turn *turn, const aq_links *links, int64_t column) {
  return turn->near_first && column < MOST_LINKED && (links->near >> column & 1) ? class->near : 0;
}

/* What is left to later pods without this card, so little that it decides between cards that are liked alike only. */
static double hint(const aq_class *class, const aq_links *links, int64_t column, uint32_t empty) {
  if (column >= MOST_LINKED || !(links->all >> column & 1)) return 0;
  return class->hint * (double)links->rest[empty & ~(UINT32_C(1) << column)];
}

aq_card *aq_links_best_liked(const aq_table *table) {
  aq_card *best = NULL;
  for (aq_card *card = table->cards; card < table->cards + table->columns; card++) {
    if (card->fits && !card->taken && (!best || card->like > best->like)) best = card;
  }
  return best;
}

static void take_liked(const aq_table *table, const aq_class *class, const aq_turn *turn, const aq_links *links) {
  bool hinted = turn->cards == 1 && links->rest;
  uint32_t empty = hinted ? aq_node_empty(table, links->all) : 0;
  for (int64_t column = 0; column < table->columns; column++) {
    double more = nearness(class, turn, links, column) + (hinted ? hint(class, links, column, empty) : 0);
    table->cards[column].like += more;
  }
  for (int64_t n = 0; n < turn->cards; n++) {
    aq_card *best = aq_links_best_liked(table);
    assert(best);
    best->taken = 1;
  }
}

/* In steps, where only greater differences count; all alike where links alone do. */
static void step_likes(const aq_table *table, const aq_class *class, const aq_turn *turn, const aq_links *links) {
  for (int64_t column = 0; column < table->columns; column++) {
    aq_card *card = &table->cards[column];
    double step = floor(card->like / class->quantum + class->grain);
    card->like = turn->liked ? step + nearness(class, turn, links, column) / class->quantum : 0;
  }
}

/* How many cards with room are liked better, and how many as well or better. */
static int64_t liked_above(const aq_table *table, double like) {
  int64_t found = 0;
  for (const aq_card *card = table->cards; card < table->cards + table->columns; card++) found += card->fits && card->like > like;
  return found;
}

static int64_t liked_from(const aq_table *table, double like) {
  int64_t found = 0;
  for (const aq_card *card = table->cards; card < table->cards + table->columns; card++) found += card->fits && card->like >= like;
  return found;
}

/* The best linked set: all of the cards that are liked better than others, any of those that are liked alike. */
static bool take_linked(const aq_table *table, const aq_turn *turn, const aq_links *links, aq_bond *bond) {
  uint32_t must = 0, may = 0;
  for (int64_t column = 0; column < table->columns && column < MOST_LINKED; column++) {
    const aq_card *card = &table->cards[column];
    if (!card->fits) continue;
    may |= (uint32_t)(liked_above(table, card->like) < turn->cards) << column;
    must |= (uint32_t)(liked_from(table, card->like) < turn->cards) << column;
  }
  int64_t best = aq_best_set(links, must, may, aq_node_empty(table, links->all));
  if (best < 0) return false;
  for (int64_t column = 0; column < table->columns && column < MOST_LINKED; column++) {
    table->cards[column].taken = (uint32_t)links->masks[best] >> column & 1;
  }
  *bond = (aq_bond){.grade = links->grades[best], .lack = links->lacks[best]};
  return true;
}

bool aq_links_choose(const aq_table *table, const aq_class *class, const aq_turn *turn, int64_t shape, aq_bond *bond) {
  const aq_links *links = &turn->links[shape];
  for (aq_card *card = table->cards; card < table->cards + table->columns; card++) card->taken = 0;
  if (links->compared) {
    step_likes(table, class, turn, links);
    return take_linked(table, turn, links, bond);
  }
  take_liked(table, class, turn, links);
  *bond = (aq_bond){.grade = links->grade};
  return true;
}
