/* Open file description locks: they belong to the open file, not to the process, so closing another descriptor of the page
 * does not drop them, and a child that has closed its copy does not hold them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "presence.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef F_OFD_SETLK /* glibc before 2.20 */
#define F_OFD_SETLK 37
#define F_OFD_GETLK 36
#endif

#define NO_FILE (-1)
#define OUT_OF_THE_WAY 200 /* programs give low numbers a meaning of their own */

static int own_file = NO_FILE;
static aq_page_file opened;
static bool held[AQ_MAX_SLOTS];
static uint32_t imports[AQ_MAX_SLOTS][AQ_SHARE_BUCKETS]; /* open in this process */

/* A program that closes descriptors which are not its own may have left another file under our number. */
static bool is_page(int file) {
  struct stat now;
  return file != NO_FILE && !fstat(file, &now) && now.st_dev == opened.device && now.st_ino == opened.inode;
}

static int move_away(int file) {
  int moved = fcntl(file, F_DUPFD_CLOEXEC, OUT_OF_THE_WAY);
  if (moved < 0) return file;
  close(file);
  return moved;
}

void aq_presence_open(const aq_page_file *page) {
  int saved = errno;
  if (!is_page(own_file)) {
    opened = *page;
    own_file = open(page->path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (own_file >= 0) own_file = move_away(own_file);
    if (!is_page(own_file)) aq_presence_forget();
  }
  errno = saved;
}

/* Returns 0 or an errno. */
static int set_lock(short kind, off_t byte) {
  struct flock range = {.l_type = kind, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
  int saved = errno, error = fcntl(own_file, F_OFD_SETLK, &range) ? errno : 0;
  errno = saved;
  return error;
}

bool aq_presence_lock(int slot) {
  if (!is_page(own_file)) return true;
  int error = set_lock(F_WRLCK, slot);
  held[slot] = error == 0;
  return error != EAGAIN && error != EACCES;
}

void aq_presence_unlock(int slot) {
  if (held[slot] && is_page(own_file)) set_lock(F_UNLCK, slot);
  held[slot] = false;
}

/* Orders: released after the lock is held, so whoever reads the word (acquire) finds the lock or its owner's end. */
void aq_presence_announce(aq_usage_page *page, int slot) {
  uint64_t owner = __atomic_load_n(&page->slots[slot].owner, __ATOMIC_RELAXED);
  if (held[slot]) __atomic_store_n(&page->slots[slot].presence, owner, __ATOMIC_RELEASE);
}

static bool is_announced(const aq_usage_slot *slot, uint64_t owner) {
  return __atomic_load_n(&slot->presence, __ATOMIC_ACQUIRE) == owner ||
         __atomic_load_n(&slot->collector, __ATOMIC_ACQUIRE) == owner;
}

bool aq_presence_is_told(aq_usage_page *page, int slot, uint64_t owner) {
  return is_page(own_file) && is_announced(&page->slots[slot], owner);
}

bool aq_presence_claim(aq_usage_page *page, int slot, uint64_t owner, uint64_t collector) {
  bool gone = aq_presence_is_told(page, slot, owner) && aq_presence_lock(slot) && held[slot];
  if (gone) __atomic_store_n(&page->slots[slot].collector, collector, __ATOMIC_RELEASE);
  return gone;
}

/* ---- imports ---- */

static off_t byte_of(int slot, int bucket) { return AQ_MAX_SLOTS + (off_t)slot * AQ_SHARE_BUCKETS + bucket; }

void aq_presence_open_share(int slot, int bucket) {
  if (imports[slot][bucket]++ == 0 && is_page(own_file)) set_lock(F_RDLCK, byte_of(slot, bucket));
}

void aq_presence_close_share(int slot, int bucket) {
  if (imports[slot][bucket] && --imports[slot][bucket] == 0 && is_page(own_file))
    set_lock(F_UNLCK, byte_of(slot, bucket));
}

bool aq_presence_is_shared(int slot, int bucket, int count) {
  struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte_of(slot, bucket), .l_len = count};
  for (int i = bucket; i < bucket + count; i++)
    if (imports[slot][i]) return true;
  int saved = errno;
  bool shared = is_page(own_file) && !fcntl(own_file, F_OFD_GETLK, &range) && range.l_type != F_UNLCK;
  errno = saved;
  return shared;
}

void aq_presence_forget(void) {
  if (is_page(own_file)) close(own_file);
  own_file = NO_FILE;
  for (int slot = 0; slot < AQ_MAX_SLOTS; slot++) held[slot] = false;
  memset(imports, 0, sizeof imports);
}
