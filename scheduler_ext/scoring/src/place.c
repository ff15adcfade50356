/* Lays pods out: container after container on the cards that are best for it then, and judges the node by what that leaves.
 * SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#include "scoring.h"
#include "links.h"
#include "node.h"
#include "measure.h"

#define FILL_DIGITS 1e9 /* of how full a node is */
#define FREE_DIGITS 1e4 /* of what is free on it */

/* A pod that is being laid out on one node. */
typedef struct {
  const aq_table *table;
  const aq_workload *workload; /* NULL where fragments do not count */
  const aq_class *class;
  int64_t row;
  double grade;  /* how well its cards are linked, from 0 to less than 1 */
  double lack;   /* what they lack, as it counts */
  double price;  /* of its cards, for models that it did not ask for */
  bool together; /* the containers found room one after the other */
} aq_laid;

/* What one node comes to. */
typedef struct {
  double key;
  float tie;
} aq_mark;

static const aq_mark NOWHERE = {.key = -INFINITY};

/* ---- containers ---- */

/* What a card is to a container by what it wastes: whole quanta first, then what is left of it. */
static double gain_of(const aq_laid *laid, const aq_card *card) {
  const aq_class *class = laid->class;
  float gained = aq_workload_lost(laid->workload, &card->sight) - aq_workload_lost(laid->workload, &card->then);
  return 8 * floor(gained / class->quantum + class->grain) - card->sight.value;
}

static void like(const aq_laid *laid, aq_card *card, const aq_turn *turn) {
  if (laid->workload) {
    aq_card with = *card;
    aq_card_charge(&with, turn);
    card->then = aq_workload_sight(laid->workload, &with, laid->table->slots_each[laid->row]);
  }
  if (laid->class->card == AQ_FRAG_AWARE && laid->workload) {
    card->like = gain_of(laid, card);
  } else {
    card->like = laid->class->card == AQ_SPREAD ? -aq_card_fill(card) : aq_card_fill(card);
  }
}

/* What a container's own cards lack counts as much as it spares others, and a little more. */
static void bind(aq_laid *laid, const aq_turn *turn, const aq_bond *bond) {
  laid->grade += bond->grade;
  if (bond->lack && laid->workload) laid->lack += (laid->class->own + laid->workload->several[turn->cards]) * (double)bond->lack;
}

static void take(aq_laid *laid, aq_card *card, const aq_turn *turn) {
  if (laid->workload && !turn->free) {
    double share = (double)aq_card_need(card, turn) / (double)(card->usable > 1 ? card->usable : 1);
    laid->price += share * laid->workload->prices[card->kind];
  }
  aq_card_charge(card, turn);
  card->sight = card->then;
}

/* Gives a container its cards, if as many as it asks for have room. */
static bool put(aq_laid *laid, const aq_turn *turn) {
  const aq_table *table = laid->table;
  if (aq_node_room(table, laid->row, turn) < turn->cards) return false;
  for (int64_t column = 0; column < table->columns; column++) {
    if (table->cards[column].fits) like(laid, &table->cards[column], turn);
  }
  aq_bond bond;
  if (!aq_links_choose(table, laid->class, turn, table->shape[laid->row], &bond)) return false;
  bind(laid, turn, &bond);
  for (int64_t column = 0; column < table->columns; column++) {
    if (table->cards[column].taken) take(laid, &table->cards[column], turn);
  }
  return true;
}

/* Whether each container has room by itself. */
static bool each_has_room(const aq_laid *laid) {
  for (int64_t n = 0; n < laid->class->turns; n++) {
    const aq_turn *turn = &laid->class->turn[n];
    if (aq_node_room(laid->table, laid->row, turn) < turn->cards) return false;
  }
  return true;
}

/* ---- nodes ---- */

static double node_fill(const aq_table *table) {
  int64_t used = 0, usable = 0;
  for (int64_t column = 0; column < table->columns; column++) {
    used += table->cards[column].used;
    usable += table->cards[column].usable;
  }
  return rint((double)used / (double)(usable > 1 ? usable : 1) * FILL_DIGITS) / FILL_DIGITS;
}

/* How full the fullest cards with room for the first container are. */
static double fullest(const aq_laid *laid, const aq_turn *turn) {
  const aq_table *table = laid->table;
  double total = 0;
  aq_node_room(table, laid->row, turn);
  for (int64_t column = 0; column < table->columns; column++) table->cards[column].like = aq_card_fill(&table->cards[column]);
  for (int64_t n = 0; n < turn->cards; n++) {
    aq_card *best = aq_links_best_liked(table);
    assert(best);
    best->taken = 1;
    total += best->like;
  }
  return total;
}

static float used_of(const aq_table *table) {
  int64_t used = 0;
  for (int64_t column = 0; column < table->columns; column++) used += table->cards[column].used;
  return (float)used;
}

/* The mark of a node by how full it is, before the pod has its cards. */
static aq_mark packed(const aq_laid *laid) {
  const aq_class *class = laid->class;
  if (class->node == AQ_SPREAD) return (aq_mark){.key = -node_fill(laid->table)};
  if (!class->turns) return (aq_mark){.key = node_fill(laid->table), .tie = used_of(laid->table)};
  return (aq_mark){.key = fullest(laid, class->turn), .tie = used_of(laid->table)};
}

/* What the cards of the node that nobody is on lack for pods of several cards. */
static int64_t lack_of(const aq_laid *laid) {
  const aq_wiring *wiring = &laid->workload->wirings[laid->table->shape[laid->row]];
  return wiring->lacks ? wiring->lacks[aq_node_empty(laid->table, wiring->all)] : 0;
}

/* The mark of a node by what the pod, which has its cards, costs others; and itself, where they are linked badly. */
static aq_mark measured(const aq_laid *laid, const aq_rows *kept, int64_t lacked) {
  const aq_class *class = laid->class;
  int64_t row = laid->row;
  int64_t cpu = laid->table->host_cpu[row] - class->host_cpu, mib = laid->table->host_mib[row] - class->host_mib;
  aq_measure after = aq_workload_measure(laid->workload, laid->table, kept->possible + row * laid->workload->blocks, cpu, mib);
  double gained = (double)(kept->fragments[row] - after.fragment) - laid->price;
  double lost = (double)(lack_of(laid) - lacked) + laid->lack;
  return (aq_mark){
      .key = floor(gained / class->quantum + class->grain) - class->lacking * lost,
      .tie = (float)(rint(-(double)after.free * FREE_DIGITS) / FREE_DIGITS),
  };
}

/* Takes a row out and lays the pod's containers out on it, telling the columns of each where anybody wants to know. */
static void put_all(aq_laid *laid, int16_t *columns) {
  for (int64_t n = 0; n < laid->class->turns; n++) {
    const aq_turn *turn = &laid->class->turn[n];
    bool found = put(laid, turn);
    laid->together = laid->together && found;
    for (int64_t column = 0; columns && found && column < laid->table->columns; column++) {
      if (laid->table->cards[column].taken) *columns++ = (int16_t)column;
    }
    for (int64_t card = 0; columns && !found && card < turn->cards; card++) *columns++ = -1;
  }
}

static aq_laid take_row(const aq_table *table, const aq_workload *workload, const aq_rows *kept, const aq_class *class, int64_t row) {
  bool counts = workload && (class->node == AQ_FRAG_AWARE || class->card == AQ_FRAG_AWARE);
  aq_node_take(table, row, counts ? kept->sights + row * table->columns : NULL);
  return (aq_laid){.table = table, .workload = counts ? workload : NULL, .class = class, .row = row, .together = true};
}

static aq_mark place(const aq_table *table, const aq_workload *workload, const aq_rows *kept, const aq_class *class, int64_t row) {
  if (table->host_slices[row] < class->host_slices) return NOWHERE;
  aq_laid laid = take_row(table, workload, kept, class, row);
  bool measures = laid.workload && class->node == AQ_FRAG_AWARE;
  if ((class->turns > 1 || !measures) && !each_has_room(&laid)) return NOWHERE;
  aq_mark mark = measures ? NOWHERE : packed(&laid);
  int64_t lacked = measures ? lack_of(&laid) : 0;
  put_all(&laid, NULL);
  if (!laid.together && class->turns == 1) return NOWHERE;
  if (measures) mark = measured(&laid, kept, lacked);
  mark.key += class->linked * laid.grade / (double)(class->turns ? class->turns : 1);
  if (!laid.together) mark.key += class->apart; /* in another order they may fit */
  return mark;
}

void aq_place(const aq_table *table, const aq_workload *workload, const aq_rows *kept, const aq_class *class, const int64_t *rows,
            int64_t count, double *keys, float *ties) {
  for (int64_t n = 0; n < count; n++) {
    aq_mark mark = place(table, workload, kept, class, rows[n]);
    keys[rows[n]] = mark.key;
    ties[rows[n]] = mark.tie;
  }
}

void aq_cards_on(const aq_table *table, const aq_workload *workload, const aq_rows *kept, const aq_class *class, int64_t row,
                 int16_t *columns) {
  aq_laid laid = take_row(table, workload, kept, class, row);
  put_all(&laid, columns);
}

void aq_look(const aq_table *table, const aq_workload *workload, const aq_rows *kept, const int64_t *rows, int64_t count, int reshaped) {
  for (int64_t n = 0; n < count; n++) {
    int64_t row = rows[n];
    uint8_t *possible = kept->possible + row * workload->blocks;
    aq_node_take(table, row, NULL);
    if (reshaped) aq_workload_possible(workload, table, table->whole_cpu[row], table->whole_mib[row], possible);
    for (int64_t column = 0; column < table->columns; column++) {
      aq_card *card = &table->cards[column];
      card->sight = aq_workload_sight(workload, card, table->slots_each[row]);
      kept->sights[row * table->columns + column] = card->sight;
    }
    kept->fragments[row] = aq_workload_measure(workload, table, possible, table->host_cpu[row], table->host_mib[row]).fragment;
  }
}
