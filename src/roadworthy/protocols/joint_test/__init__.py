"""The joint test of a type approval: what spans protocols and belongs to none of them.

A suite that several protocols declare spans them; each declares which of its figures answers which question
(`question_figures`). Here the table of answers is made from their tables, and criteria templates are kept.
"""
