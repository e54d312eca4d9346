"""The audits: a folder each, and none imports another, but `power` plans what `ks` does.

A folder has the audit's draw, judgement and result, which is its JSON. All of it runs on the host.
"""
