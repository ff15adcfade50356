/* Reads a node's cards, and says which of them have room for a container's slice: Room of scheduler_ext/cards/card_table.py, card by card.
 * SPDX-License-Identifier: Apache-2.0 */
#include "node.h"

#include <assert.h>
#include <stdbool.h>

enum { WHOLE = 100 };

static int32_t narrow(int64_t amount) { return (int32_t)(amount < INT32_MIN ? INT32_MIN : amount > INT32_MAX ? INT32_MAX : amount); }

void aq_copy(const aq_table *table, const int64_t *rows, int64_t count) {
  for (int64_t n = 0; n < count * table->columns; n++) {
    int64_t row = rows[n / table->columns], column = n % table->columns, at = column * table->rows + row;
    assert(row >= 0 && row < table->rows);
    table->stock[row * table->columns + column] = (aq_stock){
        .kind = narrow(table->kind[at]),
        .usable = narrow(table->usable[at]),
        .extra = narrow(table->extra[at]),
        .usable_cores = narrow(table->usable_cores[at]),
        .used = narrow(table->used[at]),
        .burst = narrow(table->burst[at]),
        .cores = narrow(table->cores[at]),
        .slots = narrow(table->slots[at]),
        .holders = narrow(table->holders[at]),
        .exists = table->exists[at],
        .sound = table->healthy[at] && !table->mig[at],
    };
  }
}

void aq_node_take(const aq_table *table, int64_t row, const aq_sight *sights) {
  assert(row >= 0 && row < table->rows);
  const aq_stock *stock = table->stock + row * table->columns;
  for (int64_t column = 0; column < table->columns; column++) {
    aq_card *card = &table->cards[column];
    card->kind = stock[column].kind;
    card->usable = stock[column].usable;
    card->extra = stock[column].extra;
    card->usable_cores = stock[column].usable_cores;
    card->used = stock[column].used;
    card->burst = stock[column].burst;
    card->cores = stock[column].cores;
    card->slots = stock[column].slots;
    card->holders = stock[column].holders;
    card->exists = stock[column].exists;
    card->sound = stock[column].sound;
    card->fits = card->taken = 0;
    card->sight = sights ? sights[column] : (aq_sight){.code = 0};
  }
}

int64_t aq_card_need(const aq_card *card, const aq_turn *turn) {
  return turn->mib >= 0 ? turn->mib : card->usable * turn->percent / WHOLE;
}

double aq_card_fill(const aq_card *card) { return (double)card->used / (double)(card->usable > 1 ? card->usable : 1); }

static bool unused(const aq_card *card) { return !card->slots && !card->used && !card->cores; }

/* Memory that can be promised yet: in all, and without burst no more than can be guaranteed too. */
static int64_t left_for(const aq_card *card, const aq_turn *turn) {
  int64_t left = card->usable + card->extra - card->used, guaranteed = card->usable - (card->used - card->burst);
  return turn->burst || left < guaranteed ? left : guaranteed;
}

static bool has_room(const aq_card *card, const aq_turn *turn, int64_t slots_each) {
  if (!card->sound || card->holders || card->slots >= slots_each || !turn->kinds[card->kind]) return false;
  int64_t need = aq_card_need(card, turn);
  return need > 0 && need <= card->usable && need <= left_for(card, turn) &&
         turn->cores <= card->usable_cores - card->cores && turn->cores <= card->usable_cores &&
         (!turn->exclusive || unused(card));
}

int64_t aq_node_room(const aq_table *table, int64_t row, const aq_turn *turn) {
  uint32_t near = turn->links[table->shape[row]].near;
  int64_t found = 0;
  for (int64_t column = 0; column < table->columns; column++) {
    aq_card *card = &table->cards[column];
    bool allowed = !turn->named || turn->named[column * table->rows + row];
    if (turn->near_only) allowed = allowed && column < 32 && (near >> column & 1);
    card->fits = allowed && has_room(card, turn, table->slots_each[row]);
    found += card->fits;
  }
  return found;
}

void aq_card_charge(aq_card *card, const aq_turn *turn) {
  int64_t need = aq_card_need(card, turn);
  card->used += need;
  card->burst += turn->burst ? need : 0;
  card->cores += turn->cores;
  card->slots += 1;
  card->holders += turn->exclusive;
}

uint32_t aq_node_empty(const aq_table *table, uint32_t all) {
  uint32_t empty = 0;
  for (int64_t column = 0; column < table->columns && column < 32; column++) {
    const aq_card *card = &table->cards[column];
    if (card->sound && !card->slots && !card->used && !card->holders) empty |= UINT32_C(1) << column;
  }
  return empty & all;
}
