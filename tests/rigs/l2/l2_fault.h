/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

/*
 * Faults in L2, for tests only. A program that is linked with l2_fault.c has, beside the real adapters, the same
 * ones behind a layer of faults:
 *
 *   fault+fs:///path?control=/path/to/control&max_bytes=...
 *   fault+redis://host:port?control=/path/to/control
 *
 * faulty_store.c is a plugin with the same faults inside: plugin:///path/faulty_store.so?folder=...&control=...
 *
 * The control file is this structure, mapped by the server and by the test, which writes rules into it while the server
 * runs and reads what they hit. Two layers:
 *
 *   ops    between l2_submit and the adapter, by kind of operation (enum scout__l2_what): late, failing, hanging
 *   disk   between the adapter and the kernel (link with the --wrap options of L2_FAULT_LINK): calls on what lies below
 *          the URL's path fail, are slow, are cut, or bring other bytes
 */

struct l2_fault_rule {
	_Atomic uint32_t delay_ms; /* it waits that long before the adapter gets it */
	_Atomic uint32_t hang;     /* it waits until this is 0 again; 2: even when the adapter is stopped */
	_Atomic uint32_t
		fail; /* 1 + the result (of a plugin: outcome) that it ends with, and nothing is done; 0: none */
	_Atomic int32_t detail;  /* of that result; EXISTS of a plugin: 1 is to say that everything is there */
	_Atomic uint64_t hits;   /* operations that were delayed, held or failed */
	_Atomic uint64_t passed; /* operations that the adapter got */
};

struct l2_fault_disk {
	_Atomic int32_t read_errno;      /* reads fail */
	_Atomic uint32_t read_delay_ms;  /* each read takes that long */
	_Atomic uint64_t read_end;       /* 1 + where files seem to end; 0: nowhere */
	_Atomic uint64_t read_flip;      /* 1 + the byte of each file that is read with a bit flipped; 0: none */
	_Atomic int32_t write_errno;     /* writes fail ... */
	_Atomic uint64_t write_room;     /* ... behind so many bytes of a file; the write before is cut there */
	_Atomic uint32_t write_delay_ms; /* each write takes that long */
	_Atomic uint64_t write_flip;     /* as read_flip: what lands on the disk */
	_Atomic int32_t change_errno;    /* what changes a folder fails: new files and folders, renaming, removing */
	_Atomic uint64_t hits;           /* calls that one of these met */
};

struct l2_fault_control {
	struct l2_fault_rule ops[8]; /* by enum scout__l2_what */
	struct l2_fault_disk disk;
};

/* Map @path, which is made if need be. Aborts if that cannot be. Never unmapped. */
struct l2_fault_control *l2_fault_map(const char *path);
