"""Access control: grants, and the tokens, tickets, provider tokens and certificates that prove an identity.

`policy.load` reads the access file and gives a `Policy`; its `identify_*` methods turn a credential into an `Identity`
or a `Denied`, both values. Nothing here knows about HTTP, and no function reads a clock: the caller passes a `Moment`.
"""
