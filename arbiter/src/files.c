/* The arbiter closes a gate before it reads what is in flight, and a process says so before it reads the gate: so either
 * the process finds the gate closed, or the arbiter finds the process.
 * SPDX-License-Identifier: Apache-2.0 */
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "thread.h"

#define BELLS_SIZE offsetof(aq_usage_page, slots)
#define MOVES_NS INT64_C(50000000) /* a process that is not stopped looks at its work at least so often */
#define END_BITS (32 - AQ_WORK_END_SHIFT)

static_assert(BELLS_SIZE == 4096, "the smallest page there is");

/* ---- closing ---- */

typedef struct {
  void *control, *bells;
  int control_file, usage;
} opened;

static void close_all(const opened *these) {
  if (these->control) munmap(these->control, AQ_CONTROL_SIZE);
  if (these->bells) munmap(these->bells, BELLS_SIZE);
  if (these->usage >= 0) close(these->usage);
  if (these->control_file >= 0) close(these->control_file);
}

static void *run_close(void *argument) {
  close_all(argument);
  free(argument);
  return NULL;
}

/* The kernel then looks at every lock that a tenant left on a file: a thread waits for it, and the caller only where there can
 * be none. */
void aq_files_close(aq_files *files) {
  opened these = {files->control, files->bells, files->control_file, files->usage};
  opened *kept = malloc(sizeof *kept);
  if (kept) *kept = these;
  if (kept && !aq_thread_start(NULL, false, run_close, kept)) return;
  free(kept);
  close_all(&these);
}

/* ---- opening ---- */

static bool read_at(const aq_files *files, void *into, size_t size, size_t offset) {
  return pread(files->usage, into, size, (off_t)offset) == (ssize_t)size;
}

static int open_regular(const char *path, int flags) {
  struct stat status;
  int file = open(path, flags | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
  if (file < 0) return errno == ELOOP ? -EINVAL : -errno; /* a link is as little a page as a directory is */
  if (!fstat(file, &status) && S_ISREG(status.st_mode)) return file;
  close(file);
  return -EINVAL;
}

static bool is_control(const aq_control_page *page) {
  return page->magic == AQ_CONTROL_MAGIC && page->version == AQ_PAGE_VERSION && page->card_count <= AQ_MAX_CARDS;
}

static int map_control(aq_files *files, const char *path) {
  struct stat status;
  int file = files->control_file = open_regular(path, O_RDWR);
  if (file < 0) return -file;
  if (fstat(file, &status) || status.st_size < AQ_CONTROL_SIZE) return EINVAL;
  void *page = mmap(NULL, AQ_CONTROL_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (page == MAP_FAILED) return errno;
  files->control = page;
  return is_control(page) ? 0 : EINVAL;
}

static int map_bells(aq_files *files, const char *path) {
  files->usage = open_regular(path, O_RDONLY);
  if (files->usage < 0) return -files->usage;
  void *page = mmap(NULL, BELLS_SIZE, PROT_READ, MAP_SHARED, files->usage, 0);
  if (page == MAP_FAILED) return errno;
  files->bells = page;
  return 0;
}

/* Whether an agent that knew of no arbiter made the usage page, too small for an annex. Damage is not looked for here. */
static bool is_old(const aq_files *files) {
  uint32_t size;
  struct stat status;
  return !fstat(files->usage, &status) && status.st_size == AQ_USAGE_SIZE &&
         read_at(files, &size, sizeof size, offsetof(aq_usage_page, size)) && size == AQ_USAGE_SIZE;
}

int aq_files_open(aq_files *files, const char *control, const char *usage) {
  memset(files, 0, sizeof *files);
  files->usage = files->control_file = -1;
  int error = map_control(files, control);
  if (!error) error = map_bells(files, usage);
  if (!error && is_old(files)) error = ENODATA;
  if (error) aq_files_close(files);
  return error;
}

int aq_files_card(const aq_files *files, const char *uuid) {
  for (uint32_t i = 0; i < files->control->card_count; i++)
    if (!strncmp(files->control->cards[i].uuid, uuid, AQ_UUID_SIZE)) return (int)i;
  return -1;
}

/* ---- what the tenant says ---- */

/* The end of work as a word has it, near `now`. */
static uint64_t end_of(uint32_t word, uint64_t now) {
  uint32_t unit = (uint32_t)(now >> AQ_WORK_END_UNIT_SHIFT);
  int32_t ahead = (int32_t)(((word >> AQ_WORK_END_SHIFT) - unit) << (32 - END_BITS)) >> (32 - END_BITS);
  return now + (uint64_t)((int64_t)ahead * (1 << AQ_WORK_END_UNIT_SHIFT));
}

static void add_word(aq_report *report, uint32_t word, uint64_t now) {
  report->waiting |= !!(word & AQ_WORK_WAITING);
  if (!(word & AQ_WORK_IN_FLIGHT)) return;
  uint64_t end = end_of(word, now);
  if (!report->in_flight || (int64_t)(end - report->ends_ns) > 0) report->ends_ns = end;
  report->in_flight = 1;
  report->moving |= (int64_t)(now - end) < MOVES_NS;
}

static bool is_buried(const aq_files *files, uint32_t slot) {
  return files->buried[slot] && !memcmp(&files->dead.works[slot], &files->lines.works[slot], sizeof(aq_usage_work));
}

static bool says_something(const aq_usage_work *line) {
  uint32_t any = 0;
  for (uint32_t card = 0; card < AQ_MAX_CARDS; card++) any |= line->cards[card];
  return any;
}

static void add_lines(const aq_files *files, uint64_t now, aq_words *words) {
  for (uint32_t slot = 0; slot < files->slots; slot++) {
    const aq_usage_work *line = &files->lines.works[slot];
    if (!says_something(line) || is_buried(files, slot)) continue;
    for (uint32_t card = 0; card < files->control->card_count; card++) add_word(&words->cards[card], line->cards[card], now);
  }
}

const char *aq_files_read(aq_files *files, aq_words *words) {
  union {
    aq_usage_page page;
    char bytes[BELLS_SIZE];
  } head;
  memset(words, 0, sizeof *words);
  size_t size = offsetof(aq_usage_page, cards) + files->control->card_count * sizeof(aq_usage_card);
  if (!read_at(files, head.bytes, size, 0)) return "its usage page was cut short";
  if (head.page.magic != AQ_USAGE_MAGIC || head.page.version != AQ_PAGE_VERSION) return "its usage page is none any more";
  for (uint32_t card = 0; card < files->control->card_count; card++) {
    words->busy_ns[card] = head.page.cards[card].busy_ns;
    words->bells[card] = head.page.cards[card].bell;
  }
  return NULL;
}

const char *aq_files_read_work(aq_files *files, bool all, uint64_t now, aq_words *words) {
  if (all) files->slots = AQ_MAX_SLOTS;
  if (!read_at(files, &files->lines, files->slots * sizeof(aq_usage_work), AQ_USAGE_SIZE)) return "its usage page has no annex";
  add_lines(files, now, words);
  while (files->slots && !says_something(&files->lines.works[files->slots - 1])) files->slots--;
  return NULL;
}

/* The kernel has marked the end of the slot's owner, as libshim's src/robust_list.h tells. It could be asked for the lock on the
 * slot's byte as well, but the more locks a tenant has the longer that takes. */
static bool is_gone(const aq_files *files, uint32_t slot) {
  uint64_t owner;
  uint32_t monitor;
  size_t owner_at = offsetof(aq_usage_page, slots) + slot * sizeof(aq_usage_slot);
  size_t monitor_at = offsetof(aq_usage_file, monitors) + slot * sizeof monitor;
  if (!read_at(files, &owner, sizeof owner, owner_at)) return false;
  return !owner || (read_at(files, &monitor, sizeof monitor, monitor_at) && monitor == AQ_MONITOR_ENDED);
}

void aq_files_bury(aq_files *files) {
  for (uint32_t slot = 0; slot < files->slots; slot++) {
    if (!says_something(&files->lines.works[slot])) continue;
    files->buried[slot] = is_gone(files, slot);
    files->dead.works[slot] = files->lines.works[slot];
  }
}

const void *aq_files_bell(const aq_files *files, uint32_t card) {
  return files->bells + offsetof(aq_usage_page, cards) + card * sizeof(aq_usage_card) + offsetof(aq_usage_card, bell);
}

/* ---- what the tenant is told ---- */

static uint32_t next_gate(uint32_t gate, bool open) {
  uint32_t next = gate % 2 == open ? gate + 1 : gate + 2; /* odd is closed */
  return next ? next : 2;
}

static void wake(const uint32_t *word) { syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0); }

/* Sequentially consistent: what is read next of the tenant is younger than the gate. Who waits for a gate to open need not
 * know that it was closed. */
void aq_files_set_gate(aq_files *files, uint32_t index, const aq_lease *lease) {
  aq_control_card *card = &files->control->cards[index];
  aq_files_extend(files, index, lease);
  __atomic_store_n(&card->gate, next_gate(card->gate, lease->open), __ATOMIC_SEQ_CST);
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  if (lease->open) wake(&card->gate);
}

void aq_files_extend(aq_files *files, uint32_t index, const aq_lease *lease) {
  aq_control_card *card = &files->control->cards[index];
  __atomic_store_n(&card->window_us, (uint32_t)(lease->window_ns / 1000), __ATOMIC_RELAXED);
  __atomic_store_n(&card->lease_end_ns, lease->end_ns, __ATOMIC_RELAXED);
}

void aq_files_tell(aq_files *files, uint32_t index, const aq_account *account) {
  aq_control_card *card = &files->control->cards[index];
  __atomic_store_n(&card->guaranteed_ns, account->guaranteed_ns, __ATOMIC_RELAXED);
  __atomic_store_n(&card->used_ns, account->used_ns, __ATOMIC_RELAXED);
  __atomic_store_n(&card->lent_ns, account->lent_ns, __ATOMIC_RELAXED);
}

void aq_files_beat(aq_files *files, uint64_t now) {
  __atomic_store_n(&files->control->heartbeat_ns, now, __ATOMIC_RELAXED);
}

void aq_files_forsake(aq_files *files) {
  aq_files_beat(files, 0);
  for (uint32_t i = 0; i < files->control->card_count; i++) {
    __atomic_store_n(&files->control->cards[i].gate, 0, __ATOMIC_SEQ_CST);
    wake(&files->control->cards[i].gate);
  }
}
