/* What the parts of the chaos client share: its threads, what they hold, and the page by which they are watched.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef CLIENT_H
#define CLIENT_H

#include <stdatomic.h>
#include <stdbool.h>

#include "driver.h"

#define MIB (UINT64_C(1) << 20)
#define BLOCK (2 * MIB)
#define LIVE 8
#define MOST_THREADS 4
#define ENTRIES 128

/* One process, as the watcher sees it (tests/native/chaos/watch.py reads this). */
typedef struct {
  _Atomic int32_t pid;
  _Atomic uint32_t programs;                /* executed under this pid */
  _Atomic uint64_t uncharged;               /* at most so many bytes on the card need not be in the account */
  _Atomic uint64_t progress[MOST_THREADS];  /* steps made */
} entry;

typedef struct {
  entry entries[ENTRIES];
} watch_page;

typedef enum { NOTHING, MEMORY, POOLED, ARRAY, MIPMAP, HANDLE, MAPPING, GRAPH, MODULE, IMPORTED } kind;

typedef struct {
  kind kind;
  bool shareable;
  uint64_t value, other; /* a pool with its memory; a graph with its executable */
  size_t bytes;
  uint64_t uncharged;
} object;

typedef struct {
  unsigned seed;
  int index;
  uint64_t stream;
  object objects[LIVE];
} actor;

extern watch_page *watch;
extern entry *mine;
extern void *primary;
extern const place device_memory;
extern const char SPIN[];

unsigned dice(actor *a, unsigned sides);
size_t any_size(actor *a);

/* Says which call went wrong and ends the process with 3, unless the status is success. `fits` also allows for OUT_OF_MEMORY. */
void must(int status, const char *what);
bool fits(int status, const char *what);
#define MUST(call) must(call, #call)
#define FITS(call) fits(call, #call)

/* What `o` takes of the card beyond its charge, at most: said before it is taken, withdrawn after it was given. */
void allow(object *o, uint64_t bytes);
void disallow(object *o);

/* Take something into an empty place; where it does not fit the place stays empty. */
void take_memory(actor *a, object *o);
void take_pitched(actor *a, object *o);
void take_managed(actor *a, object *o);
void take_async(actor *a, object *o);
void take_from_own_pool(actor *a, object *o);
void take_array(actor *a, object *o);
void take_mipmap(actor *a, object *o);
void take_handle(actor *a, object *o);
void take_mapping(actor *a, object *o);
void take_retained(actor *a, object *o);
void take_captured(actor *a, object *o);
void take_graph(actor *a, object *o);
void take_module(actor *a, object *o);
void take_from_others(actor *a, object *o);

/* Give back what one place holds. */
void give(actor *a, object *o);
void give_physical(const object *o);
void give_graph(const object *o);

/* Steps that leave nothing behind. */
void offer_to_others(actor *a);
void shrink(actor *a);
void ask(actor *a);
void launch(actor *a);
void relaunch(actor *a);
void visit_context(actor *a);
void visit_green_context(actor *a);
void change_limits(actor *a);

void sharing_open(const char *tenant, int place, int places);
void sharing_close(void);

#endif
