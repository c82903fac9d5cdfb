/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Included before OpenSSL's crypto/cpuid.c. On x86 OpenSSL has its detection of the CPU called from the section .init, which the linker of
 * this build leaves out; without it SHA-256 takes the plain code, in three times the time. As a constructor it runs when the binary is
 * loaded, before any thread hashes. A second call does nothing.
 */
__attribute__((constructor)) void OPENSSL_cpuid_setup(void);
