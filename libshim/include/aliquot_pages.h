/* The ABI between the node agent and the interceptor: the control page (limits; the agent writes, the tenant maps
 * it read-only) and the usage page (what is used; the tenant writes, the agent reads it with pread and believes it
 * only about that tenant).
 *
 * Compatibility: `version` changes when a field moves or changes its meaning, and then old and new refuse each
 * other. A page may grow at its end within a version, so a reader accepts any size of at least its own.
 *
 * The part between the cdef markers is also read by cffi: plain typedefs and integer defines only.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef ALIQUOT_PAGES_H
#define ALIQUOT_PAGES_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

/* cdef: begin */
#define AQ_PAGE_VERSION 1
#define AQ_MAX_CARDS 16
#define AQ_MAX_SLOTS 256
#define AQ_CONTROL_SIZE 8192
#define AQ_USAGE_SIZE 69632
#define AQ_USAGE_ADVANCED_SIZE 106496 /* with the annex and the advances */
#define AQ_USAGE_MONITORED_SIZE 107520 /* and with the monitors */
#define AQ_USAGE_FILE_SIZE 124928 /* and with the parts and what is put aside */
#define AQ_TENANT_SIZE 128
#define AQ_UUID_SIZE 64
#define AQ_SHIM_VERSION_SIZE 64
#define AQ_NOTE_SIZE 512

/* A tally: bytes in the upper 48 bits; in the lower 16 what names the change that made it, see src/ledger.c. */
#define AQ_TALLY_SHIFT 16

/* Slots below this may have advances (see src/advance.h), on the lower half of the cards. */
#define AQ_ADVANCE_SLOTS 64
#define AQ_ADVANCE_CARDS 8
#define AQ_ADVANCE_SHIFT 17
#define AQ_ADVANCE_OPEN 65536

#define AQ_ENFORCE_OFF 0
#define AQ_ENFORCE_OBSERVE 1
#define AQ_ENFORCE_ENFORCE 2

/* What holds for one card of a tenant. */
#define AQ_CARD_BURST 1         /* of the limit only the grant may be used now; the agent raises it on demand */
#define AQ_CARD_OVERFLOW_HOST 2 /* what the grant does not hold goes to managed memory that stays on the host */
#define AQ_CARD_DOUBTED 4       /* the agent does not believe what the tenant says of its time; told to whoever asks */
#define AQ_CARD_MANAGED_RESIDENT 8 /* managed memory may be larger than the slice; charged is what may come to the card */

/* What a tenant of at most 8 cards has in host memory for card i is counted in entry 8 + i, and limited there. */
#define AQ_OVERFLOW_CARDS 8

/* How a process of the tenant works on a card: in the lower bits of its word there; in the upper ones, in units of 2^14 ns
 * of CLOCK_MONOTONIC, when what it has in flight is expected to be over (they wrap; compare signed). */
#define AQ_WORK_WAITING 1   /* a thread waits at the gate */
#define AQ_WORK_IN_FLIGHT 2 /* work was submitted, or may be without asking, that is not known to be over */
#define AQ_WORK_END_SHIFT 2
#define AQ_WORK_END_UNIT_SHIFT 14

#define AQ_MONITOR_ENDED 1073741824 /* FUTEX_OWNER_DIED, without a number */

/* One card of the tenant. The first half changes when a limit does, the second, by the arbiter, with every lease. */
typedef struct {
  char uuid[64];          /* "GPU-…" or "MIG-…", NUL-padded */
  uint64_t memory_limit;  /* bytes */
  uint32_t core_percent;  /* 1-100 of the card's time; 0: uncapped */
  uint32_t flags;         /* AQ_CARD_… */
  uint64_t memory_grant;  /* bytes that may be used now, with AQ_CARD_BURST */
  int64_t memory_adjust;  /* bytes that the tenant's processes have on the card beyond what its tally says (or, negative,
                             short of it), as the agent last measured */
  uint64_t context_bytes; /* what the first context of a process on this card is charged until it is measured */
  uint32_t core_share;    /* hundredths of a percent of the card's time that are the tenant's own where an arbiter leases it:
                             its cap while that is silent; 0: nobody leases this card, core_percent is all there is */
  uint32_t core_most;     /* percent that the tenant may have when others leave it theirs */
  uint32_t priority;      /* 0-9: the higher is let in first */
  uint32_t reserved_b[3];
  uint32_t gate;          /* futex word, another number with each change; odd: closed, even: open; 0: nobody has leased yet */
  uint32_t window_us;     /* no more work than this may be in flight, except for a single piece */
  uint64_t lease_end_ns;  /* CLOCK_MONOTONIC; the gate is closed some time after it, if at all */
  uint64_t guaranteed_ns; /* of the card's time since the arbiter first saw the tenant: due to it while it had work; */
  uint64_t used_ns;       /* had by it, */
  uint64_t lent_ns;       /* and of that, had beyond its own share */
  uint64_t reserved_c[11];
} aq_control_card;

typedef struct {
  uint64_t magic;
  uint32_t version;
  uint32_t size;     /* of the whole page in bytes */
  uint32_t sequence; /* odd while the agent is writing */
  uint32_t enforcement;
  uint32_t card_count;
  uint32_t reserved_a;
  uint64_t heartbeat_ns; /* the arbiter's, CLOCK_MONOTONIC; 0: there is none */
  uint64_t granter_ns;   /* when the agent last looked for wishes beyond grants, CLOCK_MONOTONIC; 0: never */
  uint64_t measured_ns;  /* when it last looked at what the tenant's processes have on its cards, likewise */
  uint64_t reserved_b;
  char tenant[128]; /* "namespace/pod/container", NUL-padded */
  uint64_t reserved_c[8];
  aq_control_card cards[16];
  uint64_t reserved_d[480];
} aq_control_page;

/* What all processes of the tenant use of one card; its index is the control page's. */
typedef struct {
  uint64_t memory;      /* a tally, see below: bytes charged, and who changed it last */
  uint64_t memory_peak; /* bytes in use */
  uint64_t denied;      /* allocations refused (observe: that would have been) */
  uint64_t wanted;      /* bytes in use there would have been with the latest request that the grant did not hold */
  uint64_t wanted_ns;   /* when that was, CLOCK_MONOTONIC */
  uint64_t advanced;    /* slots that may have advances, one bit each */
  uint64_t estimated_ns; /* when a process was last charged an estimate here, CLOCK_MONOTONIC; 0: never */
  uint64_t aside;        /* entries of what is put aside that may be of this card, one bit each */
  uint64_t busy_ns;
  uint64_t throttled_ns;
  /* The core limit's clock, shared by the tenant's processes (src/core_clock.h); CLOCK_MONOTONIC. */
  uint64_t core_paid_until_ns;    /* before this instant the tenant owes time */
  uint64_t core_covered_until_ns; /* before this instant everything is charged */
  uint32_t bell;                  /* futex word: counts what the arbiter should look at soon */
  uint32_t reserved_b;
  uint64_t reserved_c[3];
} aq_usage_card;

/* One process. Slots have stable indexes; nothing is ever compacted. */
typedef struct {
  uint64_t owner;         /* 0: free; else pid, pid namespace and start time packed: one word, so that it can be taken by CAS */
  uint64_t intent;        /* the change of a tally under way, see src/ledger.c */
  uint64_t pid_namespace; /* inode of /proc/PID/ns/pid; 0 until the owner has written it */
  uint64_t start_time;    /* field 22 of /proc/PID/stat, clock ticks since boot */
  uint32_t pid;           /* as the process itself sees it */
  uint32_t image;         /* the program run, as an exec makes a new one; 0: not written yet */
  uint64_t presence;      /* `owner`, while it holds a lock on a byte of the page's file, see src/presence.h */
  uint64_t collector;     /* the owner to be, while it collects the slot and holds that lock */
  uint64_t exports;     /* buckets of exported memory that its owner is charged for, one bit each; see src/sharing.c */
  uint64_t memory[16];  /* tallies by card: bytes charged, and the number of the change */
  uint64_t exported[8]; /* bytes of these that other processes may have imported, by card; see src/sharing.h */
} aq_usage_slot;

typedef struct {
  uint64_t magic;
  uint32_t version;
  uint32_t size;
  uint32_t card_count; /* AQ_MAX_CARDS */
  uint32_t slot_count; /* AQ_MAX_SLOTS */
  uint64_t reserved_a[5];
  char shim_version[64];
  char note[512]; /* what the interceptor could not enforce, UTF-8, NUL-terminated */
  uint64_t shares[176]; /* handles that name exported memory, in any order; 0: free, see src/sharing.c */
  aq_usage_card cards[16];
  aq_usage_slot slots[256];
} aq_usage_page;

/* What a process has to do with each card: a word of AQ_WORK_… by card, in the slot's place. */
typedef struct {
  uint32_t cards[16];
} aq_usage_work;

/* Follows the usage page in its file. A file of an older agent ends without it; nobody leases time there. */
typedef struct {
  aq_usage_work works[256];
} aq_usage_annex;

/* What a slot is charged for on one card and its owner does not use; the words are told in src/advance.h. */
typedef struct {
  uint64_t now;    /* bytes:47 | open:1 | number of the change since which it holds:16 */
  uint64_t next;   /* the same, as the change under way shall leave it */
  uint64_t lowest; /* bytes it has come down to since then */
  uint64_t reserved;
} aq_advance;

/* One process's, on cache lines of their own. They are those of the owner whose pid and image its slot has. */
typedef struct {
  uint32_t pid;
  uint32_t image;
  uint64_t reserved[7];
  aq_advance cards[8];
} aq_advance_slot;

/* By slot, the thread of its owner that watches work (src/monitor.h), by its number in the owner's pid namespace; 0: none is
 * known. The kernel writes AQ_MONITOR_ENDED there when that thread ends, as it does with its process, see src/robust_list.h. */
typedef struct {
  uint32_t threads[256];
} aq_usage_monitors;

/* What of a slot's tallies was charged by an estimate, by card of the lower half: the agent may find less of it on the card
 * (src/estimate.h). */
typedef struct {
  uint64_t estimated[8];
} aq_usage_parts;

/* What a checkpoint has put aside of one process on one card: charged to its slot and not in use (src/aside.h). It counts while
 * the slot is its owner's. */
typedef struct {
  uint64_t owner; /* the slot's owner; 0: free */
  uint64_t word;  /* bytes:48 | slot:8 | card:8; 0: nothing */
} aq_usage_aside;

/* The whole file. One that `page.size` says is shorter, as older agents make it, ends before the parts, the monitors or the
 * annex. */
typedef struct {
  aq_usage_page page;
  aq_usage_annex annex;
  aq_advance_slot advances[64];
  aq_usage_monitors monitors;
  aq_usage_parts parts[256];
  aq_usage_aside asides[64];
} aq_usage_file;
/* cdef: end */

#define AQ_CONTROL_MAGIC UINT64_C(0x314c525443514c41) /* "ALQCTRL1", little-endian */
#define AQ_USAGE_MAGIC UINT64_C(0x4547415355514c41)   /* "ALQUSAGE" */

#define AQ_MEMORY_MAX (UINT64_MAX >> AQ_TALLY_SHIFT)

/* The owner word: pid (22 bits, PID_MAX_LIMIT) | low bits of the namespace's inode (16) | of the start time (26). */
#define AQ_OWNER_SHARED UINT64_C(1) /* nobody's: what a dead owner has exported and others still have */
#define AQ_OWNER_PID_SHIFT 42
#define AQ_OWNER_NAMESPACE_SHIFT 26
#define AQ_OWNER_NAMESPACE_MASK UINT64_C(0xffff)
#define AQ_OWNER_START_MASK UINT64_C(0x3ffffff)

static_assert(AQ_MAX_SLOTS <= 256, "a tally names its slot in 8 bits");
static_assert(sizeof(aq_control_card) == 256, "v1 layout");
static_assert(offsetof(aq_control_card, memory_limit) == 64, "v1 layout");
static_assert(offsetof(aq_control_card, memory_grant) == 80, "v1 layout");
static_assert(offsetof(aq_control_card, gate) == 128, "the arbiter's words have cache lines of their own");
static_assert(sizeof(aq_control_page) == AQ_CONTROL_SIZE, "v1 layout");
static_assert(offsetof(aq_control_page, sequence) == 16, "v1 layout");
static_assert(offsetof(aq_control_page, tenant) == 64, "v1 layout");
static_assert(AQ_OVERFLOW_CARDS * 2 == AQ_MAX_CARDS, "each card of the lower half has an entry in the upper");
static_assert(offsetof(aq_control_page, cards) == 256, "v1 layout");
static_assert(sizeof(aq_usage_card) == 128, "v1 layout");
static_assert(offsetof(aq_usage_card, busy_ns) == 64, "memory and time have cache lines of their own");
static_assert(sizeof(aq_usage_slot) == 256, "v1 layout");
static_assert(offsetof(aq_usage_slot, memory) == 64, "v1 layout");
static_assert(offsetof(aq_usage_page, cards) == 2048, "v1 layout");
static_assert(offsetof(aq_usage_page, slots) == 4096, "v1 layout");
static_assert(sizeof(aq_usage_page) == AQ_USAGE_SIZE, "v1 layout");
static_assert(sizeof(aq_advance_slot) == 320, "v1 layout");
static_assert(AQ_ADVANCE_CARDS <= AQ_OVERFLOW_CARDS, "entries for host memory have no advances");
static_assert(offsetof(aq_usage_file, annex) == AQ_USAGE_SIZE, "v1 layout");
static_assert(offsetof(aq_usage_file, advances) == 86016, "v1 layout");
static_assert(offsetof(aq_usage_file, monitors) == AQ_USAGE_ADVANCED_SIZE, "v1 layout");
static_assert(offsetof(aq_usage_file, parts) == AQ_USAGE_MONITORED_SIZE, "v1 layout");
static_assert(sizeof(aq_usage_file) == AQ_USAGE_FILE_SIZE, "v1 layout");
static_assert(sizeof(aq_usage_work) == 64, "a process's words have a cache line of their own");

#endif
