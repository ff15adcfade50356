/* Lays a class of pods out on nodes, each by itself: which cards a pod would get there, and how good the node is for it.
 *
 * Python says what is measured (scheduler_ext/placement/fragmentation.py), what decides (pod_class.py) and how links count (linked_cards.py); here it
 * is worked out. Arrays are the caller's, and only those are written that are not const. Nothing is allocated, and nothing is
 * kept between two calls. Positions in arrays are trusted: whoever calls sees to it that rows, kinds of cards and shapes of
 * nodes are those that the structs were made for.
 *
 * The part between the cdef markers is also read by cffi.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_SCORING_H
#define AQ_SCORING_H

#include <stdint.h>

/* cdef: begin */
/* What a card has for pods to come. */
typedef struct {
  float value;  /* what is free of it, 1 for an empty card */
  float worth;  /* how much of that will be filled */
  int32_t code; /* which kinds of pods have room on it: a row of the rooms of the typical pods */
} aq_sight;

/* A card as the table has it, in a form that lies close together: amounts in MiB and percent, no more than 31 bits hold. */
typedef struct {
  int32_t kind, usable, extra, usable_cores, used, burst, cores, slots, holders;
  uint8_t exists, sound; /* sound: it works, and takes slices */
} aq_stock;

/* A card of the node at hand. */
typedef struct {
  int64_t kind, usable, extra, usable_cores, used, burst, cores, slots, holders;
  double like;          /* how good it is for the container at hand */
  aq_sight sight, then; /* as it is, and with that container */
  uint8_t exists, sound, fits, taken;
} aq_card;

/* A card on which some kind of pod has room. */
typedef struct {
  const uint8_t *rooms;
  float value;
} aq_open;

/* The cluster as scheduler_ext/cards/card_table.py keeps it: arrays of shape (columns, rows), and of shape (rows) from slots_each on. */
typedef struct {
  int64_t columns, rows;
  const int64_t *kind, *usable, *extra, *usable_cores, *used, *burst, *cores, *slots, *holders;
  const uint8_t *exists, *healthy, *mig;
  const int64_t *slots_each, *host_cpu, *host_mib, *host_slices, *whole_cpu, *whole_mib, *shape;
  aq_stock *stock; /* (rows, columns): the cards, as of the last aq_copy */
  aq_card *cards;  /* room to work in, for as many as there are columns */
  aq_open *open;   /* the same */
} aq_table;

/* What the links between the cards of a shape of nodes are to later pods of several cards. */
typedef struct {
  uint32_t all;         /* its cards, as a mask of their columns */
  const int64_t *lacks; /* by mask of the cards that nobody is on: what they lack; NULL: nothing */
} aq_wiring;

/* A set of typical pods; kinds of pods come in blocks of four, of which the last is filled up with kinds of no weight. */
typedef struct {
  int64_t kinds, blocks, times, steps;       /* kinds of cards; blocks of kinds of pods; time edges; steps of a card */
  const float *weights, *cpu, *mib;          /* by kind of pod: its weight, CPU and memory of the node that it takes */
  const int32_t *cards;                      /* by kind of pod: cards */
  const float *per_cpu, *per_mib;            /* (kinds, pods): how much of the cards goes with a unit of CPU, of memory */
  const int64_t *starts, *edges;             /* kind n steps at edges[starts[n]] to edges[starts[n + 1] - 1], first at 0 */
  const int64_t *time_edges;                 /* the first of them 0 */
  const uint8_t *rooms;                      /* (codes, blocks): a bit for each kind of pod that has room */
  const float *useless;                      /* by code: the weight of the pods that have none */
  const float *worths;                       /* (kinds, steps + 1): of a rest of so many steps */
  const double *prices, *cpu_each, *mib_each; /* by kind of card: of a whole card, for those who did not ask for its model;
                                                CPU and memory that go with as much as one card */
  const aq_wiring *wirings;                  /* by shape */
  const double *several;                     /* by number of cards: the weight of the pods that lack the same sets */
  double memory_weight, flow, ahead, fill;
} aq_workload;

/* What is kept of each row. */
typedef struct {
  aq_sight *sights;  /* (rows, columns) */
  float *fragments;  /* (rows) */
  uint8_t *possible; /* (rows, blocks): a bit for each kind of pod that would find room if the node were empty */
} aq_rows;

typedef enum { AQ_FRAG_AWARE, AQ_BINPACK, AQ_SPREAD } aq_policy;

/* What the links of a shape of nodes mean for one container. */
typedef struct {
  uint32_t all, near;    /* its cards, and those near NICs, as masks of their columns */
  const int64_t *rest;   /* by mask: what cards are worth to later pods; NULL where that makes no difference */
  double grade;          /* how well any cards are linked, from 0 to less than 1 */
  uint8_t compared;      /* that depends on the cards: the sets of them have these */
  int64_t sets;
  const int32_t *masks;
  const int64_t *orders; /* the greatest comes first and is the best; among equals what is left to later pods decides */
  const double *grades;
  const int64_t *lacks;  /* what each of the sets lacks */
} aq_links;

/* One container. */
typedef struct {
  int64_t cards, mib, percent, cores; /* of each card; mib is negative where the percentage counts */
  uint8_t exclusive, burst, free;     /* free: it asks for some model, and pays no price for it */
  uint8_t near_only, near_first;      /* only cards near NICs; those before others */
  uint8_t liked;                      /* sets are compared among cards that are liked alike, else among all */
  const uint8_t *kinds;               /* by kind of card: allowed */
  const uint8_t *named;               /* (columns, rows): allowed by name; NULL: all are */
  const aq_links *links;              /* by shape */
} aq_turn;

/* What pods of one template have in common. */
typedef struct {
  int64_t turns;
  const aq_turn *turn;        /* its containers, in the order in which they are laid out */
  int64_t host_cpu, host_mib, host_slices; /* what it takes of the node, of slices over all containers */
  aq_policy node, card;
  double quantum, grain;      /* smaller differences are none; of such a step, against the noise of sums */
  double hint;                /* weight of `rest` between cards that are liked alike */
  double near;                /* weight of being near NICs, more than any card is liked */
  double linked, apart;       /* weight of links in the key; added to it where the containers do not fit together */
  double lacking, own;        /* weight of what is lacked, where the key is a measure of what is lost; of what the pod's own cards
                                 lack, more than that of those who could have had them */
} aq_class;

/* Takes over some rows of the table's arrays. What follows sees the rows as they were when they were taken over: the cards of
 * a node lie in dozens of places there, and hundreds of classes of pods look at them. */
void aq_copy(const aq_table *table, const int64_t *rows, int64_t count);

/* Works out what is kept of some rows; `reshaped`: they may have got other cards, or another amount of CPU and memory. */
void aq_look(const aq_table *table, const aq_workload *workload, const aq_rows *kept, const int64_t *rows, int64_t count, int reshaped);

/* Key and tie of some rows; -inf where a container has no room even by itself, or the node too few slices. Without typical pods everybody packs who does
 * not spread. */
void aq_place(const aq_table *table, const aq_workload *workload, const aq_rows *kept, const aq_class *class, const int64_t *rows,
            int64_t count, double *keys, float *ties);

/* The columns of a row's cards that the containers would get, one container after the other; -1 where one finds none. */
void aq_cards_on(const aq_table *table, const aq_workload *workload, const aq_rows *kept, const aq_class *class, int64_t row,
                 int16_t *columns);

/* The position of the best set with the cards in `must`, out of `may`, while nobody is on those in `empty`; -1: none. */
int64_t aq_best_set(const aq_links *links, uint32_t must, uint32_t may, uint32_t empty);

/* For every mask of `cards` cards, at most 16, the most that disjoint ones of these sets within it come to. */
void aq_partition(int64_t cards, const int64_t *masks, const int64_t *worths, int64_t count, int64_t *most);

/* The dearest filling of every rest from 0 to `steps`, by slices of these sizes, the smallest first: what it is worth, and its
 * last slice (-1 where a step stays free); `noise` is no difference. */
void aq_fill(const int64_t *sizes, const double *prices, int64_t count, int64_t steps, double noise, double *worths,
             int32_t *last);

/* How many names there are in a text that is a list of strings as Go writes it; -1 where it is not, or has anything else in it
 * than plain ASCII, escapes included. */
int64_t aq_count_names(const char *text, int64_t length);

/* Whether a name, with its quotes, is in such a list. */
int aq_has_name(const char *text, int64_t length, const char *quoted, int64_t size);
/* cdef: end */

#endif
