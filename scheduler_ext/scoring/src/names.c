/* Counts and finds the names in a list as Go writes it: strings in ASCII without escapes, nothing between them but commas.
 *
 * Nodes have names of few lengths. So where the next name ends is guessed from the one before, and looked for only where that
 * cannot be. Nothing was jumped over if all quotes of the text, counted in blocks, are those that were seen; else the names are
 * gone through once more, without guessing.
 * SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* memmem */
#include <string.h>

#include "scoring.h"

enum { SPACE = 0x20, DELETE = 0x7f, BLOCK = 16, MOST_BLOCKS = 255 };

typedef int8_t aq_bytes __attribute__((vector_size(BLOCK)));
typedef uint8_t aq_counts __attribute__((vector_size(BLOCK)));

typedef struct {
  aq_bytes odd;   /* anything but 0: some byte was one that no plain string has */
  int64_t quotes; /* so many */
} aq_sighted;

/* Looks at so many blocks, at most MOST_BLOCKS: more quotes than that do not fit in a byte. */
static void look(const char *text, int64_t blocks, aq_sighted *seen) {
  aq_bytes odd = seen->odd;
  aq_counts quotes = {0};
  for (int64_t n = 0; n < blocks; n++) {
    aq_bytes here;
    memcpy(&here, text + n * BLOCK, BLOCK);
    odd |= (here < SPACE) | (here == DELETE) | (here == '\\'); /* what is beyond ASCII is negative */
    quotes -= (aq_counts)(here == '"');
  }
  uint8_t counts[BLOCK];
  memcpy(counts, &quotes, BLOCK);
  for (int n = 0; n < BLOCK; n++) seen->quotes += counts[n];
  seen->odd = odd;
}

/* How many quotes a text has; -1 where it has control characters, backslashes or what is beyond ASCII. */
static int64_t quotes_in(const char *text, int64_t length) {
  aq_sighted seen = {.odd = {0}};
  int64_t whole = length / BLOCK;
  for (int64_t n = 0; n < whole; n += MOST_BLOCKS) {
    look(text + n * BLOCK, whole - n < MOST_BLOCKS ? whole - n : MOST_BLOCKS, &seen);
  }
  char rest[BLOCK];
  memset(rest, SPACE, BLOCK);
  memcpy(rest, text + whole * BLOCK, (size_t)(length - whole * BLOCK));
  look(rest, 1, &seen);
  uint64_t halves[2];
  memcpy(halves, &seen.odd, BLOCK);
  return halves[0] | halves[1] ? -1 : seen.quotes;
}

/* Whether a name of this length begins here, and another one follows; `left`: how much text there is. */
static inline int is_long(const char *here, int64_t left, int64_t length) {
  return left > length + 2 && here[length] == '"' && here[length + 1] == ',' && here[length + 2] == '"';
}

/* Goes from name to name, the length of each `guessed` or not; -1 where that does not come to the end of the list. */
static int64_t walk(const char *text, int64_t length, int guessed) {
  const char *here = text + 1, *last = text + length - 1; /* where a name begins; the bracket that ends the list */
  int64_t guess = 0;
  for (int64_t count = 1; last - here >= 2 && *here == '"'; count++) {
    here++;
    if (!guessed || !is_long(here, last - here, guess)) {
      const char *end = memchr(here, '"', (size_t)(last - here));
      if (end == NULL) return -1;
      guess = end - here;
    }
    here += guess + 1;
    if (here == last) return count;
    if (*here++ != ',') return -1;
  }
  return -1;
}

int64_t aq_count_names(const char *text, int64_t length) {
  if (length < 2 || text[0] != '[' || text[length - 1] != ']') return -1;
  if (length == 2) return 0;
  int64_t quotes = quotes_in(text, length);
  if (quotes < 0) return -1;
  int64_t count = walk(text, length, 1);
  return 2 * count == quotes ? count : walk(text, length, 0);
}

int aq_has_name(const char *text, int64_t length, const char *quoted, int64_t size) {
  return memmem(text, (size_t)length, quoted, (size_t)size) != NULL;
}
