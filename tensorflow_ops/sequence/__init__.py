"""Losses of label sequences: CTC, RNN-T, linear-chain CRF. Their public names are in tfo.nn."""
